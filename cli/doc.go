// Package cli holds the commands of the program. Commands for operators are
// clients of the controller's REST API and do nothing that the API cannot do.
//
// A command is a function of the App that returns a *cobra.Command, in a file
// of its own, and one line of the list in commands.go:
//
//	func whitelistCommand(app *App) *cobra.Command {
//		return &cobra.Command{
//			Use:  "list",
//			RunE: func(cmd *cobra.Command, _ []string) error {
//				c, err := app.Client()
//				if err != nil {
//					return err
//				}
//				var out []Entry
//				if err := c.Get(cmd.Context(), "/api/v1/sos/whitelist", &out); err != nil {
//					return err
//				}
//				return app.Print(out, func(w io.Writer) { ... a table, tab separated ... })
//			},
//		}
//	}
package cli
