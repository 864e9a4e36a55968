package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/handover/dhcp"
	"github.com/sluice-net/sluice/handover/domain"
	"github.com/sluice-net/sluice/handover/predict"
	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/internal/deviceauth"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
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

// Service is handover in the controller.
type Service struct {
	net      service.Network
	rules    service.Ledger
	store    store.Store
	bus      *event.Bus
	log      *slog.Logger
	strange  lograte.Limit // lines and events that any device can cause
	unsaved  lograte.Limit // lines of a store that accepts no writes
	settings Settings
	metrics  *metrics
	now      func() time.Time

	registry *registry.Registry
	dhcp     *dhcp.Server
	gateways *gateways
	pings    *pings
	lanes    *lanes
	orders   *orders
	domain   neighbours
	held     heldBack // for neighbours
	early    heldBack // for a way
	floods   *floods
	forgers  *offence
	rogues   *offence
	strays   *strays
	headers  deviceauth.Checker
	stopping <-chan struct{} // closed when the API stops
	coverage *predict.Coverage
	plane    *predict.Plane

	// tasks are the goroutines that Run waits for; ctx, theirs, ends when Run ends.
	tasks *tasks.Group
	ctx   context.Context

	// began is when the service started.
	began time.Time
	// loaded is closed when the registry has been loaded.
	loaded chan struct{}

	// links are the links as they are stored; they belong to Run.
	links []ends

	// view is what the packet-in handler looks at without a lock; nil until the
	// registry has been loaded.
	view atomic.Pointer[view]
	// rethink wakes the goroutine that keeps rules in step with the network.
	rethink chan struct{}

	mu       sync.Mutex
	ready    bool
	mobiles  map[string]*mobile
	history  *history
	ports    map[network.PortRef]association // of ports that came up, until a DHCP message
	motions  map[string]*motion
	puntErrs map[openflow.DatapathID]string
	// holding is how switches hold devices to their addresses, as far as they take it;
	// mute are those that cannot answer ARP.
	holding map[openflow.DatapathID]holding
	mute    map[openflow.DatapathID]bool
}

// New returns a Service that has not started yet.
func New(o Options) (*Service, error) {
	if o.Network == nil || o.Rules == nil || o.Store == nil {
		return nil, errors.New("handover: a network, an owner of rules and a store are needed")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.clock == nil {
		o.clock = time.Now
	}
	o.Settings = o.Settings.withDefaults()
	s := &Service{
		net: o.Network, rules: o.Rules, store: o.Store, bus: o.Bus, log: o.Log.With("service", Name),
		settings: o.Settings, now: o.clock,
		gateways: newGateways(), pings: newPings(), orders: newOrders(o.clock), floods: newFloods(), forgers: newForgers(), rogues: newRogues(), strays: newStrays(),
		loaded: make(chan struct{}), rethink: make(chan struct{}, 1), tasks: tasks.New(), mobiles: map[string]*mobile{}, history: newHistory(o.Settings.History),
		ports: map[network.PortRef]association{}, motions: map[string]*motion{}, puntErrs: map[openflow.DatapathID]string{}, holding: map[openflow.DatapathID]holding{},
		mute: map[openflow.DatapathID]bool{},
	}
	if err := s.cover(); err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	if err := s.meetNeighbours(o.Dial); err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	s.registry = registry.New(registry.Options{Store: o.Store, Clock: o.clock, Log: s.log, Publish: s.publish, Changed: s.declaredChanged})
	s.dhcp = dhcp.New(s.registry, dhcp.Options{})
	s.lanes = newLanes(s.start)
	s.ctx = s.tasks.Context()
	s.metrics = newMetrics(s)
	s.forgers.dropped, s.rogues.dropped = s.metrics.forged, s.metrics.rogue
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
	s.start(s.findGateways)
	s.start(s.expireLeases)
	s.redeclare(s.ctx)
	s.runDomain()
	s.keepUp(s.ctx)
	s.view.Store(nil)
	return nil
}

// start runs f in a goroutine that Run waits for. It does nothing after the end.
func (s *Service) start(f func(context.Context)) bool { return s.tasks.Start(f) }

// wake makes the keeper look at the network again.
func (s *Service) wake() {
	select {
	case s.rethink <- struct{}{}:
	default:
	}
}

// publish puts an event on the bus.
func (s *Service) publish(kind string, attrs any) {
	if s.bus != nil {
		s.bus.Publish(Name+"."+kind, attrs)
	}
}

// NetworkChanged tells the service of a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	switch e.Kind {
	case network.PortUp:
		s.mu.Lock()
		s.ports[e.Port] = association{up: e.At}
		s.mu.Unlock()
		if slices.ContainsFunc(s.settings.Roots, func(r Root) bool { return r.At == e.Port }) {
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
