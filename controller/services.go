package controller

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/sos"
	"github.com/sluice-net/sluice/store"
)

// Parts is what a service of your own is made from; its configuration is its own matter.
type Parts struct {
	Network *network.Network
	Store   store.Store
	Bus     *event.Bus
	Log     *slog.Logger
	// AgentTLS is how agents are spoken to; nil if the configuration (sos.tls) has no
	// certificate for that. DialAgent connects to them; nil for the ordinary way.
	AgentTLS  *tls.Config
	DialAgent control.Dialer
	// Treatments are what classes of traffic promise to packets that a service leads under other
	// headers than their own; kit.Along asks for them.
	Treatments *network.Treatments
}

// Constructor makes a service, and adds its handlers and owners of rules to the network.
type Constructor func(Parts) (Service, error)

// Service is what a plugin offers to the controller. Its constructor gets what
// it works with (network, store, event bus, its part of the configuration,
// logger); services never see each other.
type Service interface {
	// Name is a lower-case word: the service's path below /api/v1, the prefix
	// of its events and of its keys in the store.
	Name() string
	// Register adds the service's operations and metrics to the API, and its
	// handlers to the network. It is called once, before Run.
	Register(a *api.API)
	// Loaded is closed when Run has read what the store has of the service. Until
	// then nothing can be read of it.
	Loaded() <-chan struct{}
	// Run works until ctx ends. What it installed in the network stays there:
	// a restart must not interrupt what established rules carry.
	Run(ctx context.Context) error
}

// constructors is the list of services. Each returns nil if the configuration
// leaves its service out. Services of your own are in Options.
var constructors = []func(*Controller) (Service, error){
	newSOS,
	newHandover,
	newQoS,
	newCinema,
	newMobilityFirst,
	newNameService,
}

func (c *Controller) makeServices() error {
	agentTLS, err := c.tlsTo(pki.RoleAgent)
	if err != nil {
		return err
	}
	all := slices.Clone(constructors)
	for _, construct := range c.opts.Services {
		all = append(all, func(c *Controller) (Service, error) {
			return construct(Parts{Network: c.net, Store: c.store, Bus: c.bus, Log: c.log, AgentTLS: agentTLS, DialAgent: c.opts.DialAgent, Treatments: &c.treatments})
		})
	}
	for _, construct := range all {
		s, err := construct(c)
		if err != nil {
			return fmt.Errorf("controller: %w", err)
		}
		if s == nil {
			continue
		}
		s.Register(c.api)
		c.api.Await(s.Name(), s.Loaded())
		c.services = append(c.services, s)
	}
	return nil
}

func newSOS(c *Controller) (Service, error) {
	if !c.cfg.SOS.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	owner, err := c.net.Owner(sos.Name, network.OwnerOptions{})
	if err != nil {
		return nil, fmt.Errorf("sos: %w", err)
	}
	agentTLS, err := c.tlsTo(pki.RoleAgent)
	if err != nil {
		return nil, err
	}
	s, err := sos.New(sos.Options{
		Network: c.net, Rules: owner, Store: c.store, Bus: c.bus, Log: c.log,
		AgentTLS: agentTLS, ControlSubnets: c.cfg.SOS.ControlSubnets, Dial: c.opts.DialAgent, Settle: c.cfg.SOS.Settle, Linger: c.cfg.SOS.Linger,
		Treatments: &c.treatments,
	})
	if err != nil {
		return nil, err
	}
	c.net.AddHandler(rule.ChainSOS, s)
	c.net.Subscribe(s.NetworkChanged)
	c.net.Doctor().ExamineAddresses(s.Needed)
	return s, nil
}

// tlsTo is how the controller speaks to agents, or to nodes of names; nil if it has no certificate for that.
func (c *Controller) tlsTo(role pki.Role) (*tls.Config, error) {
	t := c.cfg.SOS.TLS
	if !t.Enabled() {
		return nil, nil //nolint:nilnil // those on this machine need none
	}
	config, err := pki.Client(t.Files(), role)
	if err != nil {
		return nil, fmt.Errorf("sos.tls: %w", err)
	}
	return config, nil
}
