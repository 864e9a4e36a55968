// Package cli has the commands of QoS: those of operators, the classifier and the host agent.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/qos"
)

// Service returns the service definition and the commands of QoS.
func Service() commands.Service {
	return commands.Service{
		Definitions: []kit.Definition{qos.Definition()},
		Commands: func(app *commands.App) []*cobra.Command {
			return []*cobra.Command{qosCommand(app), classifierCommand(app), hostCommand(app)}
		},
	}
}
