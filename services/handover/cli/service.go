// Package cli holds the commands of handover: those of operators, and the daemon of mobile devices
// with its configuration.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/handover"
)

// Service returns the service's definition, commands and configuration files, for the program sluice.
func Service() commands.Service {
	return commands.Service{
		Definitions: []kit.Definition{handover.Definition()},
		Commands: func(app *commands.App) []*cobra.Command {
			return []*cobra.Command{handoverCommand(app), mobileCommand(app)}
		},
		Programs: []config.Kind{{Name: "mobile", Title: "Mobile device", Default: func() config.Checked { return DefaultMobile() }}},
	}
}
