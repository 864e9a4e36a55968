// Package cli holds the commands of the program sluice. Commands for operators are clients
// of the controller's REST API and do nothing that the API cannot do. The other program's
// are in lab/cli; both use cli/command.
//
// Declared makes the commands for items that operators declare, and Get those that show an answer:
//
//	func whitelistCommand(app *commands.App) *cobra.Command {
//		d := commands.Declared[EntrySpec, EntryInfo]{App: app, Singular: "an entry", Path: sosPath + "whitelist"}
//		return commands.Group("whitelist", "Say which transfers are carried", "  sluice ...", d.List(), d.Add(), d.Remove())
//	}
//
// The flags follow from the fields of a request. Table and Fields print the fields of an answer.
// commands.go lists the commands that belong to no service.
package cli
