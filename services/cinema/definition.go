package cinema

import (
	"context"
	"fmt"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/pki"
)

// Definition describes the service to the controller.
func Definition() kit.Definition {
	return kit.Definition{
		Name: Name, Doc: "The Cinema service: live channels to many viewers.",
		Section: func() config.Section { return DefaultSection() },
		New:     fromParts,
	}
}

// fromParts makes the service as the controller's configuration has it.
func fromParts(p kit.Parts) (kit.Service, error) {
	section := config.Of[*Section](p.Config)
	if !section.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	channels, faults := section.ParsedChannels()
	if err := faults.Err(); err != nil {
		return nil, err
	}
	owner, err := p.Network.Owner(Name, network.OwnerOptions{})
	if err != nil {
		return nil, fmt.Errorf("register the rules: %w", err)
	}
	agentTLS, err := p.AgentTLS(pki.RoleAgent)
	if err != nil {
		return nil, err
	}
	s := New(Options{
		Network: p.Network, Rules: owner, Store: p.Store, Bus: p.Bus, Log: p.Log, AgentTLS: agentTLS, Dial: p.DialAgent,
		ControlSubnets: section.ControlSubnets, Media: section.MediaAddress, Share: section.LinkShare, Configured: channels,
		Treatments: p.Treatments, LinkMACs: section.LinkMACs,
	})
	p.Network.Subscribe(s.NetworkChanged)
	p.Network.Doctor().ExamineAddresses(s.Needed)
	return s, nil
}

// Reload implements kit.Reloader: channels take effect without a restart.
func (s *Service) Reload(_ context.Context, next config.Section) (take func(context.Context) error, err error) {
	return s.Channels.Collection.Reload(next.(*Section).ParsedChannels())
}
