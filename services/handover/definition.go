package handover

import (
	"context"
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
		Name: Name, Doc: "The handover service: devices that move.",
		Section: func() config.Section { return DefaultSection() },
		New:     fromParts,
	}
}

// fromParts creates the service from the controller's configuration. It returns nil if the
// configuration disables the service.
func fromParts(p kit.Parts) (kit.Service, error) {
	section := config.Of[*Section](p.Config)
	if !section.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	var s *Service
	owner, err := p.Network.Owner(Name, network.OwnerOptions{OnRemoved: func(r network.Removed) { s.Removed(r) }})
	if err != nil {
		return nil, fmt.Errorf("register the rules: %w", err)
	}
	settings, faults := section.Settings()
	if err := faults.WithPrefix(Name).Err(); err != nil {
		return nil, err
	}
	for i := range settings.Neighbours {
		n := &settings.Neighbours[i]
		if n.TLS, err = pki.Client(section.Neighbours[n.Name].TLS.Files(), pki.RoleController); err != nil {
			return nil, fmt.Errorf("handover.neighbours.%s.tls: %w", n.Name, err)
		}
	}
	s, err = New(Options{
		Network: p.Network, Rules: owner, Store: p.Store, Bus: p.Bus, Log: p.Log, Settings: settings, Dial: p.DialNeighbour,
	})
	if err != nil {
		return nil, err
	}
	p.Network.AddHandler(rule.ChainHandover, s)
	p.Network.Subscribe(s.NetworkChanged)
	p.Network.AnchorHosts(s)
	return s, nil
}

// Reload implements kit.Reloader: classes, pools and devices take effect without a restart.
func (s *Service) Reload(_ context.Context, next config.Section) (take func(context.Context) error, err error) {
	settings, faults := next.(*Section).Settings()
	if err := faults.Err(); err != nil {
		return nil, err
	}
	if err := s.Fits(settings.Definitions); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return s.Reconfigure(ctx, settings.Definitions) }, nil
}
