// Package cli holds the commands of the program sluice. Commands for operators are clients
// of the controller's REST API and do nothing that the API cannot do. The other program's
// are in lab/cli; what both stand on is cli/command.
//
// What operators declare has its commands from Declared, what they look at from Get:
//
//	func whitelistCommand(app *commands.App) *cobra.Command {
//		d := commands.Declared[EntrySpec, EntryInfo]{App: app, Noun: "an entry", Path: sosPath + "whitelist"}
//		return commands.Group("whitelist", "Say which transfers are carried", "  sluice ...", d.List(), d.Add(), d.Remove())
//	}
//
// Flags follow from the fields of a request, Table and Fields print those of an answer. A
// service's commands are one line of the list in commands.go.
package cli
