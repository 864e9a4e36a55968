package handover

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

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/domain"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// Name is the service's name. It appears in the paths of the API, in the keys of the store and as
// the owner of rules.
const Name = "handover"

// quietTime is how long the topology must not have changed before devices get their rules
// after a restart. Devices need not wait for it if all links that were known before the restart have
// been discovered again. With only some of the links, the computed paths would differ from those
// that packets take now.
const quietTime = 400 * time.Millisecond

// maxQueued bounds the jobs that wait for one device, and maxWaiting the jobs that wait for all
// devices together.
const (
	maxQueued  = 16
	maxWaiting = 8192
)

// neighbours holds the methods that the service needs of a *domain.Service, the protocol between
// domains.
type neighbours interface {
	Register(*api.API)
	Restore(context.Context) error
	Run(context.Context)
	Upstream(id string) (string, bool)
	Record(id string) (domain.Record, bool)
}

// receiver holds the methods that the service needs of a *domain.Receiver, the part of the protocol for
// devices that come to this domain. Admit decides whether a DHCP message may be handled now. The
// service calls Attached when a device has got its address at an edge port, and Left when a device has
// left.
type receiver interface {
	Admit(mac openflow.MAC, h domain.Heading, e *domain.Evidence) domain.Admission
	Attached(id string, e *domain.Evidence)
	Left(id string)
}

// origin holds the methods that the service needs of a *domain.Origin, the part of the protocol for
// devices that leave this domain.
type origin interface {
	Announce(ctx context.Context, id, peer string, h domain.Heading) error
	Abandon(ctx context.Context, id string) error
}

// core holds what all components of the service share.
type core struct {
	net      kit.Network
	rules    kit.Ledger
	bus      *event.Bus
	log      *slog.Logger
	warnings lograte.Limit // limits log lines and events that any device can cause
	settings Settings
	metrics  *metrics
	now      func() time.Time
	registry *registry.Registry
	// domain, origin and receiver are nil without neighbours.
	domain   neighbours
	origin   origin
	receiver receiver

	// tasks holds the goroutines that Run waits for; ctx is their context and ends with Run.
	tasks *tasks.Group
	ctx   context.Context
	// queue runs the jobs of each device in order, and those of different devices concurrently.
	queue *queue
	// reconcileLoop wakes the reconciliation of rules with the network.
	reconcileLoop kit.Loop
	// loaded is closed once the stored devices and leases have been read.
	loaded chan struct{}
	// started is the time at which the service started.
	started time.Time
	// view is the state that the packet-in handler reads without a lock. It is nil until the
	// registry has been loaded.
	view atomic.Pointer[view]

	mu    sync.Mutex // guards the fields below and those of other components that say so
	ready bool
	// topologySettled reports whether the service has stopped waiting for switches after its
	// start.
	topologySettled bool
}

// start runs f in a goroutine that Run waits for, and reports whether it did. It does nothing once
// Run has ended.
func (s *core) start(f func(context.Context)) bool { return s.tasks.Start(f) }

// wake starts another reconciliation soon.
func (s *core) wake() { s.reconcileLoop.Wake() }

// change calls f under the lock, so that readers see all of its changes or none.
func (s *core) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// publish publishes an event on the bus.
func (s *core) publish(kind string, attrs any) {
	if s.bus != nil {
		s.bus.Publish(Name+"."+kind, attrs)
	}
}

// portUp reports whether a port is up.
func (s *core) portUp(at network.PortRef) bool {
	up, _ := s.net.PortUp(at)
	return up
}

// borderAt returns the border port at a switch port.
func (s *core) borderAt(at network.PortRef) (b Border, ok bool) {
	for _, b := range s.settings.Borders {
		if b.At == at {
			return b, true
		}
	}
	return Border{}, false
}

// whyNotAttachable returns a text that says which kind of port is needed, for example "an edge port",
// if devices cannot attach at the port. It returns an empty string if they can.
func (s *core) whyNotAttachable(at network.PortRef) string {
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

// hasPath reports whether there is a path between any border port and the port.
func (s *core) hasPath(at network.PortRef) bool {
	top := s.net.Topology()
	return slices.ContainsFunc(s.settings.Borders, func(r Border) bool {
		_, ok := top.Distance(r.At.Switch, at.Switch)
		return ok
	})
}

// ipOf returns the device's leased address, or the address it is bound to if it has no active
// lease.
func (s *core) ipOf(d registry.Device) netip.Addr {
	if l, ok := s.registry.Lease(d.ID); ok && l.Active(s.now()) {
		return l.IP
	}
	return d.IP
}

// leaseHolder returns the device that holds an address now, here or in another domain.
func (s *core) leaseHolder(ip netip.Addr) (registry.Device, bool) {
	d, ok := s.registry.DeviceByIP(ip)
	if !ok {
		return d, false
	}
	l, ok := s.registry.Lease(d.ID)
	return d, ok && l.IP == ip && l.Active(s.now()) && l.Attachment != nil
}

// answersFor reports whether the service itself answers for the address, as a gateway's or the
// DHCP server's.
func (s *core) answersFor(ip netip.Addr) bool {
	v := s.view.Load()
	if v == nil {
		return false
	}
	_, gateway := v.gateways[ip]
	return gateway || v.servers[ip]
}

// enqueue queues work for a device. If the queue is full the work is dropped: the next
// reconciliation finds that it is still needed.
func (s *core) enqueue(id string, job func(context.Context)) {
	if err := s.queue.Add(id, job); errors.Is(err, errBusy) {
		s.metrics.dropped.WithLabelValues("check").Inc()
	}
}

// reportRefused logs a refused message and publishes an event about it. Anybody can send such
// messages, so both are rate limited; the next report says how many were left out. It reports whether
// the message was not left out.
func (s *core) reportRefused(kind, text string, attrs map[string]any) bool {
	skipped, turn := s.warnings.Turn(time.Now())
	if !turn {
		return false
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
	return true
}

// notifyLeft tells the protocol between domains that a device has left.
func (s *core) notifyLeft(id string) {
	if s.domain != nil {
		s.receiver.Left(id)
	}
}
