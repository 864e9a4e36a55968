package cli

import (
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
)

// New returns the root command.
func New(app *App) *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "Moves data over OpenFlow networks",
		Long: `Sluice moves data over OpenFlow networks. One program holds the controller, the
agents and daemons beside it, and the commands with which an operator looks after
them: add, set, list, show and remove what is declared, where a noun alone lists.
Networks on one machine, to try it in, are made by another program, sluice-lab.`,
	}
	f := root.PersistentFlags()
	app.connectionFlags(f)
	f.DurationVar(&app.timeout, "timeout", 30*time.Second, "how long to wait for an answer of the API")
	root.AddCommand(commands(app)...)
	for _, x := range app.extras {
		if x.Commands != nil {
			root.AddCommand(x.Commands(app)...)
		}
	}
	command.Finish(root, &app.Output, command.Docs{Reference: Reference, Files: files})
	return root
}

// Main runs the program, with what is given besides, and returns its exit code.
func Main(extras ...Extra) int {
	app := &App{
		Output: command.Standard(), extras: extras,
		localTokens: []string{filepath.Join(config.DefaultDataDir(), "token"), systemTokenFile},
	}
	return command.Main(New(app), &app.Output)
}
