package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/dhcp"
	"github.com/sluice-net/sluice/services/handover/domain"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/store"
)

// Name is the service's name. It appears in the paths of the API, in the keys of the store and as
// the owner of rules.
const Name = "handover"

// Options holds what a Service needs from the controller.
type Options struct {
	Network  kit.Network
	Rules    kit.Ledger
	Store    store.Store
	Bus      *event.Bus
	Log      *slog.Logger
	Settings Settings
	// Dial connects to neighbours. If it is nil, the domain package's own dialer is used.
	Dial domain.Dialer

	// clock replaces time.Now in tests.
	clock func() time.Time
}

// Service is the handover service of the controller. It consists of components, of which each uses
// the core, which all share, and those before it.
type Service struct {
	*core
	placement *placement
	guards    *guards
	packets   *packetHandler
	predictor *predictor
	api       *apiHandlers
	links     knownLinks // used by the goroutine of Run only
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
		loaded: make(chan struct{}), reconcileLoop: kit.NewLoop(), tasks: tasks.New(),
	}
	c.ctx = c.tasks.Context()
	c.queue = newQueue(c.tasks, maxQueued, maxWaiting)
	p := &placement{core: c, mobiles: map[string]*mobile{}, motions: map[string]*motion{}, history: newHistory(c.settings.History)}
	g := newGuards(p)
	in := &packetHandler{core: c, placement: p, guards: g, ports: map[network.PortRef]association{}}
	s := &Service{
		core: c, placement: p, guards: g, packets: in, predictor: &predictor{core: c, placement: p},
		links: knownLinks{store: o.Store, log: c.log},
	}
	s.api = &apiHandlers{
		core: c, placement: p, guards: g, packets: in, predictor: s.predictor, daemons: &daemons{core: c, orders: newOrders(o.clock)},
	}
	c.registry = registry.New(registry.Options{Store: o.Store, Clock: o.clock, Log: c.log, Publish: c.publish, Changed: s.declaredChanged})
	in.dhcp = dhcp.New(c.registry, dhcp.Options{})
	if err := errors.Join(s.predictor.loadCoverage(), s.connectNeighbours(o)); err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	c.metrics = newMetrics(s)
	s.guards.forgers.dropped, s.guards.rogues.dropped = c.metrics.forged, c.metrics.rogue
	return s, nil
}

// Name returns the service's name.
func (s *Service) Name() string { return Name }

// Loaded returns a channel that is closed once the stored devices and leases have been read.
func (s *Service) Loaded() <-chan struct{} { return s.loaded }

// Register adds the service's operations and metrics to the API.
func (s *Service) Register(a *api.API) { s.api.register(a) }

// Errors lists what does not work, with cause and remedy.
func (s *Service) Errors() []string { return s.api.status().Errors }

// HandlePacketIn implements network.Handler: it handles DHCP and ARP that concern devices, and
// packets with the address of a device.
func (s *Service) HandlePacketIn(p *network.PacketIn) network.Verdict { return s.packets.handle(p) }

// Removed handles a rule that a switch has removed by its timeout. It does not block.
func (s *Service) Removed(r network.Removed) { s.guards.removed(r) }

// Anchored implements network.Anchors: it returns the border ports by which all traffic of a
// device comes and goes, wherever the device is; false if no device with rules has the address.
func (s *Service) Anchored(ip netip.Addr) (network.Anchor, bool) { return s.guards.anchored(ip) }

// Moving implements network.Anchors: it returns the prefixes of hosts that may be devices, and the
// border ports through which all their traffic passes.
func (s *Service) Moving() network.Moving { return s.guards.moving() }

// ActionsFor implements network.Anchors: it decides about a packet as the rules of devices would.
func (s *Service) ActionsFor(at network.PortRef, h *packet.Headers) (out []openflow.Action, ours bool) {
	return s.guards.led(at, h)
}

// Run runs the service until ctx ends. The rules of devices stay in the switches.
func (s *Service) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.tasks.Cancel)
	defer stop()
	defer s.tasks.Stop()
	s.started = s.now()
	if err := s.load(s.ctx); err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	close(s.loaded)
	s.guards.refreshView()
	s.guards.applyPunts(s.ctx) // before the rules in the switches are compared with the declared ones
	s.start(s.registry.Run)
	s.start(func(ctx context.Context) { s.guards.gateways.asking.Run(ctx, 0, askUnknown, s.guards.findGateways) })
	s.start(func(ctx context.Context) { kit.NewLoop().Run(ctx, 0, expireInterval, s.expire) })
	s.restoreRules(s.ctx)
	if s.domain != nil {
		s.start(s.domain.Run)
	}
	s.reconcile(s.ctx)
	s.reconcileLoop.Run(s.ctx, settleChanges, resync, s.reconcile)
	s.view.Store(nil)
	return nil
}

// NetworkChanged updates the service after a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	switch e.Kind {
	case network.PortUp:
		s.mu.Lock()
		s.packets.ports[e.Port] = association{up: e.At}
		s.mu.Unlock()
		if _, border := s.borderAt(e.Port); border {
			s.guards.gateways.askAgain()
		}
	case network.PortDown:
		s.mu.Lock()
		delete(s.packets.ports, e.Port)
		s.mu.Unlock()
		s.wake()
	case network.SwitchUp, network.SwitchDown, network.LinkUp, network.LinkDown:
		s.wake()
	}
}
