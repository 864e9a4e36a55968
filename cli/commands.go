package cli

import "github.com/spf13/cobra"

// commands is the list of the program's commands, in the order of the help.
func commands(app *App) []*cobra.Command {
	return []*cobra.Command{
		experimentCommand(app),
		versionCommand(app),
	}
}
