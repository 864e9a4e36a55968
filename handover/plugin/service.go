package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/handover/dhcp"
	"github.com/sluice-net/sluice/handover/domain"
	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/store"
)

// Name is the service's name: its path in the API, its keys in the store, its
// owner of rules.
const Name = "handover"

// Options is what a Service works with.
type Options struct {
	Network  service.Network
	Rules    service.Ledger
	Store    store.Store
	Bus      *event.Bus
	Log      *slog.Logger
	Settings Settings
	// Dial connects to neighbours; nil for the ordinary way.
	Dial domain.Dialer

	// clock replaces the time in tests.
	clock func() time.Time
}

// Service is handover in the controller. Its rooms stand on one another, the later on the
// earlier: core, placement, guards, intake, operations.
type Service struct {
	*operations
	links knownLinks // belong to Run
}

// New returns a Service that has not started yet.
func New(o Options) (*Service, error) {
	if o.Network == nil || o.Rules == nil || o.Store == nil {
		return nil, errors.New("handover: a network, an owner of rules and a store are needed")
	}
	if o.clock == nil {
		o.clock = time.Now
	}
	c := &core{
		net: o.Network, rules: o.Rules, bus: o.Bus, log: o.Log.With("service", Name), settings: o.Settings.withDefaults(), now: o.clock,
		loaded: make(chan struct{}), keeping: service.NewLoop(), tasks: tasks.New(),
	}
	c.ctx = c.tasks.Context()
	c.queue = newQueue(c.tasks, maxQueued, maxWaiting)
	p := &placement{core: c, mobiles: map[string]*mobile{}, motions: map[string]*motion{}, history: newHistory(c.settings.History)}
	in := &intake{guards: newGuards(p), ports: map[network.PortRef]association{}}
	s := &Service{
		operations: &operations{intake: in, foresight: &foresight{placement: p}, daemons: &daemons{core: c, orders: newOrders(o.clock)}},
		links:      knownLinks{store: o.Store, log: c.log},
	}
	c.registry = registry.New(registry.Options{Store: o.Store, Clock: o.clock, Log: c.log, Publish: c.publish, Changed: s.declaredChanged})
	in.dhcp = dhcp.New(c.registry, dhcp.Options{})
	if err := errors.Join(s.cover(), s.meetNeighbours(o)); err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	c.metrics = newMetrics(s)
	s.forgers.dropped, s.rogues.dropped = c.metrics.forged, c.metrics.rogue
	return s, nil
}

// Name is the service's name.
func (s *Service) Name() string { return Name }

// Loaded is closed when what the store has is there.
func (s *Service) Loaded() <-chan struct{} { return s.loaded }

// Run works until ctx ends. Rules of devices stay in the switches.
func (s *Service) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.tasks.Cancel)
	defer stop()
	defer s.tasks.Stop()
	s.began = s.now()
	if err := s.load(s.ctx); err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	close(s.loaded)
	s.refreshView()
	s.applyPunts(s.ctx) // before the switches' rules are compared with what is wanted
	s.start(s.registry.Run)
	s.start(func(ctx context.Context) { s.gateways.asking.Run(ctx, 0, askUnknown, s.findGateways) })
	s.start(func(ctx context.Context) { service.NewLoop().Run(ctx, 0, expireInterval, s.expire) })
	s.redeclare(s.ctx)
	if s.domain != nil {
		s.start(s.domain.Run)
	}
	s.keepUp(s.ctx)
	s.keeping.Run(s.ctx, settleChanges, resync, s.keepUp)
	s.view.Store(nil)
	return nil
}

// NetworkChanged tells the service of a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	switch e.Kind {
	case network.PortUp:
		s.mu.Lock()
		s.ports[e.Port] = association{up: e.At}
		s.mu.Unlock()
		if _, border := s.borderAt(e.Port); border {
			s.gateways.reached()
		}
	case network.PortDown:
		s.mu.Lock()
		delete(s.ports, e.Port)
		s.mu.Unlock()
		s.wake()
	case network.SwitchUp, network.SwitchDown, network.LinkUp, network.LinkDown:
		s.wake()
	}
}
