package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit/commands"
)

// New returns the root command of a program with these services.
func New(app *commands.App, services []commands.Service) *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "Moves data over OpenFlow networks",
		Long: `Sluice moves data over OpenFlow networks. This program contains the controller, its
agents and daemons, and the commands with which an operator manages them: add, set,
list, show and remove declared items; a noun alone lists them. Another program,
sluice-lab, makes test networks on one machine.`,
	}
	app.Flags(root.PersistentFlags())
	root.AddCommand(own(app, services)...)
	for _, s := range services {
		if s.Commands != nil {
			root.AddCommand(s.Commands(app)...)
		}
	}
	reference := func() (map[string]string, error) { return Reference(services) }
	command.Finish(root, &app.Output, command.Docs{Reference: reference, Files: files})
	return root
}

// Main runs a program with these services, and returns its exit code.
func Main(services []commands.Service) int {
	app := &commands.App{
		Output:      command.Standard(),
		LocalTokens: []string{filepath.Join(config.DefaultDataDir(), "token"), commands.SystemTokenFile},
	}
	return command.Main(New(app, services), &app.Output)
}
