package mobilityfirst

import (
	"context"
	"fmt"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/mobilityfirst/nameservice"
)

// Definition describes the service to the controller.
func Definition() kit.Definition {
	return kit.Definition{
		Name: Name, Doc: "The MobilityFirst service: paths between names.",
		Section: func() config.Section { return DefaultSection() },
		New:     fromParts,
	}
}

// NameService describes the name service in the controller, which the section of the
// MobilityFirst service configures.
func NameService() kit.Definition {
	return kit.Definition{Name: nameservice.Name, New: nameServiceFromParts}
}

// fromParts creates the service from the controller's configuration, or returns nil if it is not
// enabled.
func fromParts(p kit.Parts) (kit.Service, error) {
	section := config.Of[*Section](p.Config)
	if !section.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	owner, err := p.Network.Owner(Name, network.OwnerOptions{})
	if err != nil {
		return nil, fmt.Errorf("register the rules: %w", err)
	}
	metric, err := topology.ParseMetric(p.Config.Network.Forwarding.Metric)
	if err != nil {
		return nil, fmt.Errorf("network.forwarding.metric: %w", err)
	}
	nodes, faults := section.ParsedNodes()
	if err := faults.Err(); err != nil {
		return nil, err
	}
	nodeTLS, err := p.AgentTLS(pki.RoleNode)
	if err != nil {
		return nil, err
	}
	s := New(Options{
		Network: p.Network, Rules: owner, Store: p.Store, Bus: p.Bus, Log: p.Log, Metric: metric, Lease: section.Lease, MaxPaths: section.MaxPaths,
		Configured: nodes, NodeTLS: nodeTLS, Dial: p.DialAgent,
	})
	p.Network.AddHandler(rule.ChainMobilityFirst, s)
	p.Network.Subscribe(s.NetworkChanged)
	return s, nil
}

// Reload implements kit.Reloader: nodes take effect without a restart.
func (s *Service) Reload(_ context.Context, next config.Section) (take func(context.Context) error, err error) {
	return s.Nodes().Reload(next.(*Section).ParsedNodes())
}

// nameServiceFromParts creates the name service from the controller's configuration, or returns nil
// if it is not configured.
func nameServiceFromParts(p kit.Parts) (kit.Service, error) {
	section := config.Of[*Section](p.Config)
	o, ok := section.NameService(p.Config.DataDir)
	if !ok || !section.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	o.Log = p.Log.With("service", nameservice.Name)
	return nameservice.New(o), nil
}
