package sos

import (
	"fmt"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/pki"
)

// Definition describes the service to the controller.
func Definition() kit.Definition {
	return kit.Definition{
		Name: Name, Doc: "The SOS service: transfers carried by agents.",
		Section: func() config.Section { return DefaultSection() },
		New:     fromParts,
	}
}

// fromParts makes the service according to the controller's configuration. It returns nil if the
// service is disabled.
func fromParts(p kit.Parts) (kit.Service, error) {
	section := config.Of[*Section](p.Config)
	if !section.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	owner, err := p.Network.Owner(Name, network.OwnerOptions{})
	if err != nil {
		return nil, fmt.Errorf("register the rules: %w", err)
	}
	agentTLS, err := p.AgentTLS(pki.RoleAgent)
	if err != nil {
		return nil, err
	}
	s, err := New(Options{
		Network: p.Network, Rules: owner, Store: p.Store, Bus: p.Bus, Log: p.Log, AgentTLS: agentTLS, Dial: p.DialAgent,
		ControlSubnets: section.ControlSubnets, Settle: section.Settle, Linger: section.Linger, Treatments: p.Treatments,
	})
	if err != nil {
		return nil, err
	}
	p.Network.AddHandler(rule.ChainSOS, s)
	p.Network.Subscribe(s.NetworkChanged)
	p.Network.Doctor().ExamineAddresses(s.Needed)
	return s, nil
}
