// Package cli contains the commands of MobilityFirst: hosts, nodes and routers, sending and
// receiving, and the name service. Start reading at [Service].
package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/mobilityfirst"
)

// Service returns the service's definitions and commands for the program.
func Service() commands.Service {
	return commands.Service{
		Definitions: []kit.Definition{mobilityfirst.Definition(), mobilityfirst.NameService()},
		Commands:    func(app *commands.App) []*cobra.Command { return []*cobra.Command{mfCommand(app)} },
	}
}
