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

// Service is the handover service of the controller. Its components share the core. Each component
// may also use the components that are declared before it.
type Service struct {
	*core
	placement *placement
	guards    *guards
	packets   *packetHandler
	predictor *predictor
	// quarantine and links have no lock: each is used by a single goroutine of Run.
	quarantine quarantine
	api        *apiHandlers
	links      knownLinks
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
		quarantine: quarantine{core: c}, links: knownLinks{store: o.Store, log: c.log},
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

// ActionsFor implements network.Anchors: it returns the actions that the rules of devices have for a
// packet that arrived at a port. ours reports whether those rules decide about the packet; if ours is
// set and there are no actions, they drop it.
func (s *Service) ActionsFor(at network.PortRef, h *packet.Headers) (out []openflow.Action, ours bool) {
	return s.guards.earlyActions(at, h)
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
	s.guards.applyPunts(s.ctx) // must come before the ledger compares the switches' rules with the declared ones
	s.start(s.registry.Run)
	s.start(func(ctx context.Context) { s.guards.gateways.asking.Run(ctx, 0, askUnknown, s.guards.findGateways) })
	s.start(func(ctx context.Context) { kit.NewLoop().Run(ctx, 0, expireInterval, s.expire) })
	s.start(func(ctx context.Context) { kit.NewLoop().Run(ctx, 0, quarantineInterval, s.quarantine.check) })
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

// Fits returns an error if definitions of the configuration conflict with what was declared by the
// API or with what devices hold. It changes nothing. Loaded must be closed before it is called.
func (s *Service) Fits(next registry.Definitions) error {
	if err := s.registry.Fits(next).Err(); err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	return nil
}

// Reconfigure replaces the configured definitions by next; attached devices follow. Loaded must be
// closed before it is called.
func (s *Service) Reconfigure(ctx context.Context, next registry.Definitions) error {
	if err := s.registry.Configure(ctx, next); err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	return nil
}

// declaredChanged updates the devices whose declarations have changed. If ids is empty, a pool has
// changed instead, and the packet-in handler gets a new view.
func (s *Service) declaredChanged(ctx context.Context, ids []string) {
	if len(ids) == 0 {
		s.guards.refreshView()
		return
	}
	tasks.Each(ids, 16, func(id string) {
		err := s.queue.Do(ctx, id, func(ctx context.Context) error { return s.applyDeclaration(ctx, id) })
		if err != nil && ctx.Err() == nil {
			s.log.Warn("a device's rules do not follow its declaration yet; it will be tried again", "device", id, "error", err)
			m := s.placement.mobileOf(id)
			s.change(func() { m.err = err.Error() })
		}
	})
}

// applyDeclaration updates a device's rules to its current declaration, and removes them if it is
// no longer declared.
func (s *Service) applyDeclaration(ctx context.Context, id string) error {
	if _, known := s.registry.Device(id); known {
		return s.placement.replan(ctx, id, "the device was changed")
	}
	s.notifyLeft(id)
	return s.placement.detach(ctx, id, s.placement.mobileOf(id).plan.Want().IP, nil, "the device is no longer declared")
}

const (
	// settleChanges is how long changes of the network are collected before rules are checked.
	settleChanges = 20 * time.Millisecond
	// resync is how often all rules are checked without a cause.
	resync = 5 * time.Second
	// expireInterval is how often leases are checked.
	expireInterval = time.Second
)

// reconcile adapts the rules to the current state of the network, and handles the requests that
// waited for a path.
func (s *Service) reconcile(ctx context.Context) {
	s.guards.applyPunts(ctx)
	s.packets.resumePostponed()
	s.checkDevices()
	s.links.save(ctx, s.net.Topology())
}

// checkDevices finds devices whose rules are not as they should be, and queues their repair.
func (s *Service) checkDevices() {
	top := s.net.Topology()
	attached := map[string]bool{}
	for _, l := range s.registry.Leases() {
		if l.Attachment == nil || !l.Active(s.now()) {
			continue
		}
		attached[l.Device] = true
		if s.placement.needsRules(l.Device, top) {
			s.enqueue(l.Device, func(ctx context.Context) { s.placement.reroute(ctx, l.Device) })
		} else if s.guards.answersOutdated(&l) {
			s.enqueue(l.Device, func(ctx context.Context) { s.guards.updateAnswers(ctx, l.Device) })
		}
	}
	for _, id := range s.placement.devicesWithRules() {
		if !attached[id] {
			s.enqueue(id, func(ctx context.Context) { s.placement.removeDetached(ctx, id) })
		}
	}
}

// expire ends the leases that have expired, and reports the floods and violations that have ended.
func (s *Service) expire(ctx context.Context) {
	s.guards.expireFloods()
	s.guards.expireViolations()
	ended, err := s.registry.Lessor.Expire(ctx, s.now())
	if err != nil && ctx.Err() == nil {
		s.log.Warn("expired leases cannot be ended yet", "error", err)
	}
	for _, l := range ended {
		s.expired(l)
	}
}

// expired removes the rules of a device whose lease has expired.
func (s *Service) expired(l registry.Lease) {
	s.publish("lease.expired", map[string]any{"device": l.Device, "ip": l.IP})
	s.notifyLeft(l.Device)
	s.enqueue(l.Device, func(ctx context.Context) { s.placement.removeDetached(ctx, l.Device) })
}

const (

	// topologyPoll is how often the topology is checked after a start.
	topologyPoll = 20 * time.Millisecond
)

// load reads the registry from the store, applies the configured definitions to it, and restores the
// records about devices that have left for another domain or come from one. The service must know
// these devices before it does anything for them.
func (s *Service) load(ctx context.Context) error {
	if err := errors.Join(s.registry.Load(ctx, s.settings.Definitions), s.links.load(ctx)); err != nil || s.domain == nil {
		return err
	}
	return s.domain.Restore(ctx)
}

// restoreRules declares the rules of attached devices in the ledger after a start. Rules that are
// in the switches already are not written again. Other rules stay in the switches until those of all
// devices are declared, or until Settings.Settle has passed; then the ledger removes them.
func (s *Service) restoreRules(ctx context.Context) {
	began, tick := time.Now(), time.NewTicker(topologyPoll)
	defer tick.Stop()
	version, since := s.net.Topology().Version, time.Now()
	tried := false
	for time.Since(began) < s.settings.Settle {
		s.packets.resumePostponed()
		waiting := s.withoutRules()
		if len(waiting) == 0 {
			break
		}
		top := s.net.Topology()
		if top.Version != version {
			version, since = top.Version, time.Now()
		}
		if known := !tried && s.links.complete(top); known || time.Since(since) >= quietTime && len(top.Switches) > 0 {
			s.declareAll(ctx, waiting)
			tried, since = true, time.Now()
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	s.change(func() { s.topologySettled = true })
	s.declareAll(ctx, s.withoutRules()) // includes devices that waited for the switch of their previous place
	left := s.withoutRules()
	if tasks.Sleep(ctx, settling) != nil { // packets that matched rules to be removed are still in flight
		return
	}
	s.rules.Ready()
	s.mu.Lock()
	s.ready = true
	s.mu.Unlock()
	for _, id := range left {
		s.log.Warn("after the start a device could not be served: its switch is not connected, or no path leads to it", "device", id)
	}
	s.log.Info("handover: ready", "devices", len(s.registry.Devices()), "not_served", len(left), "took", time.Since(began).Round(time.Millisecond))
	s.publish("service.ready", map[string]any{"not_served": len(left), "took": Duration(time.Since(began))})
}

// withoutRules returns the attached devices that have no rules.
func (s *Service) withoutRules() []string {
	var out []string
	for _, l := range s.registry.Leases() {
		if l.Attachment == nil || !l.Active(s.now()) {
			continue
		}
		s.mu.Lock()
		m := s.placement.mobiles[l.Device]
		if m == nil || m.state == detached {
			out = append(out, l.Device)
		}
		s.mu.Unlock()
	}
	return out
}

// declareAll declares the rules of devices, several at a time.
func (s *Service) declareAll(ctx context.Context, ids []string) {
	tasks.Each(ids, 64, func(id string) {
		if ctx.Err() != nil {
			return
		}
		err := s.queue.Do(ctx, id, func(ctx context.Context) error { return s.placement.replan(ctx, id, "the controller has started") })
		if err != nil {
			m := s.placement.mobileOf(id)
			s.change(func() { m.err = fmt.Sprint(err) })
		}
	})
}
