// Package cli has the commands of MobilityFirst: hosts, nodes and routers, what they send and
// fetch, and the name service.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/mobilityfirst"
)

// Service returns what the program has of MobilityFirst.
func Service() commands.Service {
	return commands.Service{
		Definitions: []kit.Definition{mobilityfirst.Definition(), mobilityfirst.NameService()},
		Commands:    func(app *commands.App) []*cobra.Command { return []*cobra.Command{mfCommand(app)} },
	}
}
