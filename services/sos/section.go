package sos

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/config"
)

// Section is what the controller's configuration has below the key sos. Everything that an
// operator changes while the controller runs (agents, whitelist, tuning) is in the store
// instead.
type Section struct {
	Enabled bool `yaml:"enabled" doc:"Off: the service and its part of the API do not exist."`

	ControlSubnets []netip.Prefix `yaml:"control_subnets" doc:"Subnets in which agents that announce themselves may have their control address. Elsewhere it must be the address from which they announce themselves."`

	Settle time.Duration `yaml:"settle" min:"1s" max:"5m" doc:"How long after a start the service waits for the switches of sessions that go on from before."`
	Linger time.Duration `yaml:"linger" min:"100ms" max:"1m" doc:"How long a session's rules stay after its agents are done. Their end hosts have acknowledged everything then, but may say so once more."`
}

// DefaultSection returns the section of a controller that is told nothing.
func DefaultSection() *Section {
	return &Section{Enabled: true, Settle: 10 * time.Second, Linger: 200 * time.Millisecond}
}

// Check implements config.Section.
func (*Section) Check(*config.Checker, *config.Controller) {}

// Adopt implements config.Section: a change takes a restart.
func (s *Section) Adopt(config.Section) config.Section { return s }
