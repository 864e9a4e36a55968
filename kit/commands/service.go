package commands

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
)

// Service is a service's part of the program sluice.
type Service struct {
	// Definitions describes what the controller runs for the service.
	Definitions []kit.Definition
	// Commands makes the service's commands. It may be nil.
	Commands func(*App) []*cobra.Command
	// Programs lists the service's daemons that read configurations of their own kinds.
	Programs []config.Kind
}

// Definitions returns the definitions of all services.
func Definitions(services []Service) (all []kit.Definition) {
	for _, s := range services {
		all = append(all, s.Definitions...)
	}
	return all
}

// Kinds returns the programs that read a configuration: the controller with these services, the
// agent, and the services' own daemons.
func Kinds(services []Service) []config.Kind {
	all := []config.Kind{
		{Name: "controller", Title: "Controller", Default: func() config.Checked {
			return config.DefaultController(kit.Sections(Definitions(services)))
		}},
		{Name: "agent", Title: "Agent", Default: func() config.Checked { return config.DefaultAgent() }},
	}
	for _, s := range services {
		all = append(all, s.Programs...)
	}
	return all
}
