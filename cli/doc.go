// Package cli holds the commands of the program sluice. Commands for operators are clients
// of the controller's REST API and do nothing that the API cannot do. The commands of the other
// program, sluice-lab, are in lab/cli. Both programs use cli/command.
//
// commands.Declared makes the commands for items that operators declare. commands.Get makes commands
// that show an answer of the API:
//
//	func whitelistCommand(app *commands.App) *cobra.Command {
//		d := commands.Declared[EntrySpec, EntryInfo]{App: app, Singular: "an entry", Path: sosPath + "whitelist"}
//		return commands.Group("whitelist", "Say which transfers are carried", "  sluice ...", d.List(), d.Add(), d.Remove())
//	}
//
// The flags are made from the fields of a request. commands.Table and commands.Fields print the fields
// of an answer. The file commands.go lists the commands that belong to no service.
package cli
