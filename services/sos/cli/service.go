// Package cli has the commands of SOS: those of operators, and the agent.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/sos"
)

// Service returns the service definition and the commands of SOS.
func Service() commands.Service {
	return commands.Service{
		Definitions: []kit.Definition{sos.Definition()},
		Commands: func(app *commands.App) []*cobra.Command {
			return []*cobra.Command{sosCommand(app), agentCommand(app)}
		},
	}
}
