package plugin

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/service"
)

// Bounds of the work that waits: of one device, and of all together.
const (
	maxQueued  = 16
	maxWaiting = 8192
)

// core is what all rooms of the service stand on.
type core struct {
	net      service.Network
	rules    service.Ledger
	bus      *event.Bus
	log      *slog.Logger
	strange  lograte.Limit // lines and events that any device can cause
	settings Settings
	metrics  *metrics
	now      func() time.Time
	registry *registry.Registry
	// nil without neighbours
	domain   neighbours
	origin   origin
	receiver receiver

	// tasks are the goroutines that Run waits for; ctx, theirs, ends when Run ends.
	tasks *tasks.Group
	ctx   context.Context
	// queue has the work for devices: for each one thing after the other, for different
	// ones at once.
	queue *queue
	// keeping keeps rules in step with the network.
	keeping service.Loop
	// loaded is closed when what the store has is there.
	loaded chan struct{}
	// began is when the service started.
	began time.Time
	// view is what the packet-in handler looks at without a lock; nil until the
	// registry has been loaded.
	view atomic.Pointer[view]

	mu    sync.Mutex // guards what rooms say that it does
	ready bool
	// settled is when no more switches are waited for after the start.
	settled bool
}

// start runs f in a goroutine that Run waits for. It does nothing after the end.
func (s *core) start(f func(context.Context)) bool { return s.tasks.Start(f) }

// wake makes the keeper look at the network again.
func (s *core) wake() { s.keeping.Wake() }

// change makes a change that readers see whole.
func (s *core) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// publish puts an event on the bus.
func (s *core) publish(kind string, attrs any) {
	if s.bus != nil {
		s.bus.Publish(Name+"."+kind, attrs)
	}
}

func (s *core) portUp(at network.PortRef) bool {
	up, _ := s.net.PortUp(at)
	return up
}

// borderAt finds the border port at a port.
func (s *core) borderAt(at network.PortRef) (b Border, is bool) {
	for _, b := range s.settings.Borders {
		if b.At == at {
			return b, true
		}
	}
	return Border{}, false
}

// noPlace says why a port is not one where a device can be.
func (s *core) noPlace(at network.PortRef) string {
	_, border := s.borderAt(at)
	switch top := s.net.Topology(); {
	case !top.Has(at.Switch):
		return "a port of a switch that is connected"
	case !top.IsEdge(at):
		return "an edge port: this one leads to another switch"
	case border:
		return "an edge port: this one is a border port"
	}
	return ""
}

// led says whether there is a way between a border port and the port.
func (s *core) led(at network.PortRef) bool {
	top := s.net.Topology()
	return slices.ContainsFunc(s.settings.Borders, func(r Border) bool {
		_, ok := top.Distance(r.At.Switch, at.Switch)
		return ok
	})
}

// ipOf is the device's address: the one it has, else the one it is bound to.
func (s *core) ipOf(d registry.Device) netip.Addr {
	if l, ok := s.registry.Lease(d.ID); ok && l.Active(s.now()) {
		return l.IP
	}
	return d.IP
}

// leased finds the device that has an address now, here or in another domain.
func (s *core) leased(ip netip.Addr) (registry.Device, bool) {
	d, ok := s.registry.DeviceByIP(ip)
	if !ok {
		return d, false
	}
	l, ok := s.registry.Lease(d.ID)
	return d, ok && l.IP == ip && l.Active(s.now()) && l.Attachment != nil
}

// serves says whether the address is one that the service itself answers for.
func (s *core) serves(ip netip.Addr) bool {
	v := s.view.Load()
	if v == nil {
		return false
	}
	_, gateway := v.gateways[ip]
	return gateway || v.servers[ip]
}

// enqueue queues work for a device. What finds no room there is found to be
// necessary again at the next look.
func (s *core) enqueue(id string, job func(context.Context)) {
	if err := s.queue.Add(id, job); errors.Is(err, errBusy) {
		s.metrics.dropped.WithLabelValues("check").Inc()
	}
}

// tellRefused tells of a message that anybody can send, in the log and as an event: not of
// each one in a flood, of which neither the log nor whoever reads events would be left
// anything else, but of how many were left out.
func (s *core) tellRefused(kind, text string, attrs map[string]any) {
	skipped, turn := s.strange.Turn(time.Now())
	if !turn {
		return
	}
	if skipped > 0 {
		attrs["left_out"] = skipped
	}
	args := make([]any, 0, 2*len(attrs))
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		args = append(args, name, lograte.Shorten(attrs[name]))
	}
	s.log.Warn(text, args...)
	s.publish(kind, attrs)
}

// tellLeft tells the protocol between domains that a device has left.
func (s *core) tellLeft(id string) {
	if s.domain != nil {
		s.receiver.Left(id)
	}
}
