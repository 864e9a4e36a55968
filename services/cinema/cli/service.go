// Package cli defines the commands of Cinema: those for operators, and those that run gateways, with
// the configurations of the gateways.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/cinema"
)

// Service returns the parts of Cinema for the program: the service of the controller, the commands, and
// the kinds of configuration files.
func Service() commands.Service {
	return commands.Service{
		Definitions: []kit.Definition{cinema.Definition()},
		Commands:    func(app *commands.App) []*cobra.Command { return []*cobra.Command{cinemaCommand(app)} },
		Programs: []config.Kind{
			{Name: "cinema-ingress", Title: "Ingress gateway", Intro: "`sluice cinema ingress`, whose kind is `cinema-ingress`.", Default: func() config.Checked { return DefaultIngress() }},
			{Name: "cinema-egress", Title: "Egress gateway", Intro: "`sluice cinema egress`, whose kind is `cinema-egress`.", Default: func() config.Checked { return DefaultEgress() }},
		},
	}
}
