package discovery

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Options control how links are found. Zero fields mean the defaults.
type Options struct {
	// Interval is the time between two probes of a port.
	Interval time.Duration
	// Lifetime is how long a link is kept without a probe: at least two intervals, by default
	// three.
	Lifetime time.Duration
	// Settle is how long a new port is probed quickly before it counts as an edge port.
	Settle time.Duration
	// MaxAge is how long a probe may be in flight.
	MaxAge time.Duration
	// Window is the number of probes over which latency is smoothed.
	Window int
	// Burst limits the probes that one Tick returns. Switches take turns.
	Burst int
	// Key authenticates probes. If it is empty, a random key is generated.
	Key []byte
	// Guard, if not nil, reports whether links through a port are refused.
	Guard func(topology.PortRef) bool
	// Keep, if not nil, reports whether a port should stay open when it is part of a loop. If
	// possible, the other port of the loop is blocked instead.
	Keep func(topology.PortRef) bool
}

// The defaults of Options.
const (
	DefaultInterval = 5 * time.Second
	DefaultSettle   = time.Second
	DefaultMaxAge   = 3 * time.Second
	DefaultWindow   = 8
	DefaultBurst    = 64
)

// quickProbes is how many probes a new port sends while it settles.
const quickProbes = 4

// maxInFlight limits the remembered probes in flight of a port. A probe that arrives after so
// many later ones were sent is ignored.
const maxInFlight = 64

// Kind is the kind of a Change.
type Kind uint8

// The kinds of change.
const (
	// LinkUp and LinkDown report one direction of a link.
	LinkUp Kind = iota + 1
	LinkDown
	// EdgeUp reports that a port has settled as an edge port.
	EdgeUp
	// LinkUnprobed reports that the probes of a link do not arrive, and that it is kept because
	// it carries other packets.
	LinkUnprobed
	// LoopFound reports that Port is blocked: a foreign bridge, which the controller does not
	// control, connects Port with another edge port, or sends Port's own frames back to it. LoopGone
	// reports that the loop is gone.
	LoopFound
	LoopGone
)

// Change is a change that discovery has found. Link is set for links, Port for edge ports and
// loops. Other is the port at the other end of a loop.
type Change struct {
	Kind        Kind
	Link        topology.Link
	Port, Other topology.PortRef
}

// Discovery is the table of ports and links. It is safe for concurrent use.
type Discovery struct {
	opts       Options
	key        []byte
	controller uint64
	start      time.Time

	mu       sync.RWMutex
	seq      uint64
	switches map[openflow.DatapathID]*switchPorts
	linked   map[*port]struct{} // ports with a link to another port
	schedule schedule
}

// port is the state of one switch port that is up.
type port struct {
	at         topology.PortRef
	sw         *switchPorts
	mac        openflow.MAC
	next       time.Time // when to probe again
	settle     time.Time // when the port becomes an edge port if no probe arrives
	edge       bool
	lastSeq    uint64             // sequence number of the latest probe that arrived
	inFlight   []uint64           // sequence numbers of the latest probes that have not arrived, ascending
	probedAt   time.Time          // when a probe last arrived here
	loopedAt   time.Time          // when one of its own probes last came back
	outLink    *link              // the link that leaves by the port
	linkedFrom map[*port]struct{} // ports whose links lead here
	traffic    traffic
	loop       loop
	queueItem
}

type link struct {
	to         topology.PortRef
	probedAt   time.Time // when a probe last arrived
	probesSent int       // probes sent since then
	countersAt time.Time // when the counters of its ends were last requested
	unprobed   bool      // the link is kept without probes, and LinkUnprobed was reported
	latencyEstimate
}

// New returns an empty table. The times in probes count from now.
func New(o Options, now time.Time) *Discovery {
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.Lifetime = max(cmp.Or(o.Lifetime, 3*o.Interval), 2*o.Interval)
	o.Settle = cmp.Or(o.Settle, DefaultSettle)
	o.MaxAge = cmp.Or(o.MaxAge, DefaultMaxAge)
	o.Window = cmp.Or(o.Window, DefaultWindow)
	o.Burst = cmp.Or(o.Burst, DefaultBurst)
	d := &Discovery{opts: o, start: now, switches: map[openflow.DatapathID]*switchPorts{}, linked: map[*port]struct{}{}}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, see package crypto/rand
	if d.key = slices.Clone(o.Key); len(d.key) == 0 {
		d.key = make([]byte, 32)
		_, _ = rand.Read(d.key)
	}
	d.controller = be.Uint64(id[:])
	return d
}

// port returns a port, or nil if it is not up.
func (d *Discovery) port(at topology.PortRef) *port {
	if m := d.switches[at.Switch]; m != nil {
		return m.ports[at.Port]
	}
	return nil
}

// PortUp starts to probe a port. If the port is known already, it first loses its links and state.
func (d *Discovery) PortUp(at topology.PortRef, mac openflow.MAC, now time.Time) []Change {
	d.mu.Lock()
	defer d.mu.Unlock()
	changes := d.drop(d.port(at))
	m := d.switches[at.Switch]
	if m == nil {
		m = &switchPorts{dpid: at.Switch, ports: map[uint32]*port{}}
		d.switches[at.Switch] = m
	}
	p := &port{at: at, sw: m, mac: mac, next: now, settle: now.Add(d.opts.Settle), linkedFrom: map[*port]struct{}{}, loop: loop{since: now}}
	m.ports[at.Port] = p
	d.schedule.add(p, d.nextCheck(p, now))
	return changes
}

// PortDown removes a port and its links.
func (d *Discovery) PortDown(at topology.PortRef) []Change {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.drop(d.port(at))
}

// SwitchDown removes all ports of a switch and their links.
func (d *Discovery) SwitchDown(s openflow.DatapathID) []Change {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.switches[s]
	if m == nil {
		return nil
	}
	var changes []Change
	for _, number := range slices.Sorted(maps.Keys(m.ports)) {
		changes = append(changes, d.drop(m.ports[number])...)
	}
	return changes
}

// drop removes a port, if it is not nil, and both directions of its link.
func (d *Discovery) drop(p *port) []Change {
	if p == nil {
		return nil
	}
	var changes []Change
	if p.outLink != nil {
		changes = append(changes, d.unlink(p))
	}
	for _, other := range sorted(p.linkedFrom) {
		changes = append(changes, d.unlink(other))
	}
	changes = append(changes, d.leaveLoop(p)...)
	d.schedule.remove(p)
	if delete(p.sw.ports, p.at.Port); len(p.sw.ports) == 0 {
		delete(d.switches, p.at.Switch)
	}
	return changes
}

// connect records a link from one port to another.
func (d *Discovery) connect(from, to *port) {
	from.outLink = &link{to: to.at}
	to.linkedFrom[from] = struct{}{}
	d.linked[from] = struct{}{}
}

// unlink removes the link that leaves by a port. The port becomes an edge port only after it has
// been silent for a link's lifetime.
func (d *Discovery) unlink(p *port) Change {
	c := Change{Kind: LinkDown, Link: p.link()}
	to := d.port(p.outLink.to)
	delete(d.linked, p)
	p.outLink = nil
	if to != nil {
		delete(to.linkedFrom, p)
		d.schedule.move(to, d.nextCheck(to, time.Time{}))
	}
	d.schedule.move(p, d.nextCheck(p, time.Time{}))
	return c
}

func (p *port) link() topology.Link {
	return topology.Link{From: p.at, To: p.outLink.to, Latency: time.Duration(p.outLink.latency), Jitter: time.Duration(p.outLink.jitter)}
}

// sorted returns the ports in order, so that changes always come in the same order.
func sorted(ports map[*port]struct{}) []*port {
	return slices.SortedFunc(maps.Keys(ports), func(a, b *port) int { return a.at.Compare(b.at) })
}

// Probe appends the frame to be sent out of a port. The caller must send it at once, because the
// frame contains the time. Probe returns nil if the port is down.
func (d *Discovery) Probe(b []byte, at topology.PortRef, now time.Time) []byte {
	d.mu.Lock()
	p := d.port(at)
	if p == nil {
		d.mu.Unlock()
		return nil
	}
	d.seq++
	p.inFlight = append(p.inFlight[max(0, len(p.inFlight)+1-maxInFlight):], d.seq)
	pr := probe{controller: d.controller, from: at, seq: d.seq, sent: now.Sub(d.start)}
	mac := p.mac
	d.mu.Unlock()
	return appendFrame(b, mac, pr, d.key, d.opts.Lifetime)
}

// Receive handles an LLDP frame that arrived at a port. control returns what is known of the
// connection between the controller and a switch. The latency of a link stays unknown until the
// round trips to both of its switches are known. An error says why the frame is refused; only
// ErrForeign is harmless.
func (d *Discovery) Receive(frame []byte, h *packet.Headers, at topology.PortRef, now time.Time, control func(openflow.DatapathID) Control) ([]Change, error) {
	if !h.Has(packet.LLDP) {
		return nil, ErrForeign
	}
	body, sum, err := findBody(frame[h.L3:])
	if err != nil {
		return nil, err
	}
	pr := parseProbe(body)
	if pr.controller != d.controller {
		return nil, ErrForeign
	}
	if !hmac.Equal(sum, hash(d.key, linkLabel, body)) {
		return nil, fmt.Errorf("%w at %v: claims to come from %v", ErrForged, at, pr.from)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.accept(pr, at, now, control)
}

// accept handles an authentic probe.
func (d *Discovery) accept(pr probe, at topology.PortRef, now time.Time, control func(openflow.DatapathID) Control) ([]Change, error) {
	from, here := d.port(pr.from), d.port(at)
	flight := now.Sub(d.start) - pr.sent
	switch {
	case from == nil || here == nil:
		return nil, nil // one of the ports went down a moment ago
	case flight > d.opts.MaxAge && from.takeInFlight(pr.seq) && !from.edge && !here.edge:
		return nil, fmt.Errorf("%w at %v: number %d of %v, sent %v ago: more than %v", ErrLate, at, pr.seq, pr.from, flight, d.opts.MaxAge)
	case flight < 0 || flight > d.opts.MaxAge || !from.takeInFlight(pr.seq):
		return nil, fmt.Errorf("%w at %v: number %d of %v, sent %v ago", ErrReplayed, at, pr.seq, pr.from, flight)
	case pr.seq < from.lastSeq:
		return nil, fmt.Errorf("%w at %v: number %d of %v, sent %v ago, after number %d", ErrLate, at, pr.seq, pr.from, flight, from.lastSeq)
	case pr.from == at:
		from.lastSeq, from.loopedAt, from.edge = pr.seq, now, false
		d.schedule.move(from, d.nextCheck(from, now))
		return nil, nil
	case d.opts.Guard != nil && (d.opts.Guard(at) || d.opts.Guard(pr.from)):
		return nil, fmt.Errorf("%w: from %v to %v", ErrGuarded, pr.from, at)
	}
	from.lastSeq = pr.seq
	here.probedAt, here.edge, from.edge = now, false, false
	var changes []Change
	if l := from.outLink; l != nil && l.to != at {
		if now.Sub(l.probedAt) < d.opts.Interval/2 {
			return nil, nil // on a shared medium the link stays with the port that was found first
		}
		changes = append(changes, d.unlink(from))
	}
	fresh := from.outLink == nil
	if fresh {
		changes = append(changes, append(d.unblock(from), d.unblock(here)...)...)
		d.connect(from, here)
		if here.outLink == nil { // its earlier probes arrived before the other end was known
			here.next = now
		}
	}
	from.outLink.probedAt, from.outLink.probesSent, from.outLink.unprobed = now, 0, false
	from.outLink.add(flight, control(pr.from.Switch), control(at.Switch), d.opts.Window)
	if fresh {
		changes = append(changes, Change{Kind: LinkUp, Link: from.link()})
	}
	d.schedule.move(from, d.nextCheck(from, now))
	d.schedule.move(here, d.nextCheck(here, now))
	return changes, nil
}

// takeInFlight removes a probe from those in flight, and reports whether it was one of them.
func (p *port) takeInFlight(seq uint64) bool {
	i, ok := slices.BinarySearch(p.inFlight, seq)
	if ok {
		p.inFlight = slices.Delete(p.inFlight, i, i+1)
	}
	return ok
}

// Links returns the links, ordered by their From.
func (d *Discovery) Links() []topology.Link {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var out []topology.Link
	for _, p := range sorted(d.linked) {
		out = append(out, p.link())
	}
	return out
}

// IsEdge reports whether a port is up, has settled and shows no sign of a link, so that hosts
// may be learned and broadcasts sent there.
func (d *Discovery) IsEdge(at topology.PortRef) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	p := d.port(at)
	return p != nil && p.edge
}

// IsSettling reports whether a port came up a moment ago: it shows no sign of a link or a loop, but
// has not been probed for long enough to count as an edge port.
func (d *Discovery) IsSettling(at topology.PortRef) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	p := d.port(at)
	return p != nil && !p.edge && p.outLink == nil && len(p.linkedFrom) == 0 && p.probedAt.IsZero() && p.loopedAt.IsZero() && !p.loop.blocked()
}

// EdgePorts returns the edge ports of a switch, ascending.
func (d *Discovery) EdgePorts(s openflow.DatapathID) []uint32 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	m := d.switches[s]
	if m == nil {
		return nil
	}
	var out []uint32
	for number, p := range m.ports {
		if p.edge {
			out = append(out, number)
		}
	}
	slices.Sort(out)
	return out
}
