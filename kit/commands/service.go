package commands

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
)

// Service is what the program sluice has of a service.
type Service struct {
	// Definitions describe what the controller runs of it.
	Definitions []kit.Definition
	// Commands makes its commands; nil for none.
	Commands func(*App) []*cobra.Command
	// Programs are its daemons that read a configuration of a kind of their own.
	Programs []config.Kind
}

// Definitions lists what the controller runs of services.
func Definitions(services []Service) (all []kit.Definition) {
	for _, s := range services {
		all = append(all, s.Definitions...)
	}
	return all
}

// Kinds lists the programs that read a configuration: the controller with these services, the
// agent, and the services' own.
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
