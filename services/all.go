// Package services lists the services of Sluice. Each is one folder: the package of its name is
// the controller's side, its README says what it promises, and below it are its parts: its
// agents, its commands (cli), and what these have in common.
package services

import (
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/commands"
	cinema "github.com/sluice-net/sluice/services/cinema/cli"
	handover "github.com/sluice-net/sluice/services/handover/cli"
	mobilityfirst "github.com/sluice-net/sluice/services/mobilityfirst/cli"
	qos "github.com/sluice-net/sluice/services/qos/cli"
	sos "github.com/sluice-net/sluice/services/sos/cli"
)

// All lists the services. The controller makes them in this order.
func All() []commands.Service {
	return []commands.Service{
		sos.Service(),
		handover.Service(),
		qos.Service(),
		cinema.Service(),
		mobilityfirst.Service(),
	}
}

// Definitions lists what the controller runs of them.
func Definitions() []kit.Definition { return commands.Definitions(All()) }

// DefaultConfig returns the configuration of a controller with all services that is told nothing.
func DefaultConfig() *config.Controller { return config.DefaultController(kit.Sections(Definitions())) }
