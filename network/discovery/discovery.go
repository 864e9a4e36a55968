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

// Options say how links are found. Zero fields mean the defaults.
type Options struct {
	// Interval is the time between two probes of a port.
	Interval time.Duration
	// Lifetime is how long a link stands without a probe, two intervals at the least; by default
	// three.
	Lifetime time.Duration
	// Settle is how long a port is probed, quickly, before it counts as an edge port.
	Settle time.Duration
	// MaxAge is how long a probe may be under way.
	MaxAge time.Duration
	// Window is the number of probes over which latency is smoothed.
	Window int
	// Burst bounds the probes that one Tick asks for. Switches take turns.
	Burst int
	// Key authenticates probes. Without one a random key is made.
	Key []byte
	// Guard, if set, refuses links through ports for which it says true.
	Guard func(topology.PortRef) bool
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

// maxAway bounds the probes of a port that are remembered to be under way: one that comes
// when as many have followed it does not count.
const maxAway = 64

// Kind says what a Change is.
type Kind uint8

// The kinds of change.
const (
	// LinkUp and LinkDown: one direction of a link.
	LinkUp Kind = iota + 1
	LinkDown
	// EdgeUp: a port has settled as an edge port.
	EdgeUp
	// LinkUnprobed: the probes of a link do not arrive, and it stands because it carries
	// other packets.
	LinkUnprobed
)

// Change is something that discovery has found out. Link is set for links, Port
// for edge ports.
type Change struct {
	Kind Kind
	Link topology.Link
	Port topology.PortRef
}

// Discovery is the table of ports and links. Its methods may be called concurrently.
type Discovery struct {
	opts       Options
	key        []byte
	controller uint64
	start      time.Time

	mu       sync.RWMutex
	seq      uint64
	switches map[openflow.DatapathID]*member
	linked   map[*port]struct{} // ports that lead to another
	schedule schedule
}

// port is what is known of one switch port that is up.
type port struct {
	at       topology.PortRef
	of       *member
	mac      openflow.MAC
	next     time.Time // when to probe again
	settle   time.Time // when to become an edge port if nothing is heard
	edge     bool
	accepted uint64             // sequence number of the latest probe that arrived
	away     []uint64           // of the latest probes that have not, ascending
	heard    time.Time          // when a probe last arrived here
	looped   time.Time          // when one of its own came back
	out      *link              // where the port leads
	into     map[*port]struct{} // ports that lead here
	traffic  traffic
	entry
}

type link struct {
	to       topology.PortRef
	seen     time.Time // when a probe last arrived
	asked    int       // probes that were due since then
	counted  time.Time // when its ends' counters were last asked for
	unprobed bool      // it stands without probes, which has been told
	transit
}

// New makes an empty table. Probes count time from now.
func New(o Options, now time.Time) *Discovery {
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.Lifetime = max(cmp.Or(o.Lifetime, 3*o.Interval), 2*o.Interval)
	o.Settle = cmp.Or(o.Settle, DefaultSettle)
	o.MaxAge = cmp.Or(o.MaxAge, DefaultMaxAge)
	o.Window = cmp.Or(o.Window, DefaultWindow)
	o.Burst = cmp.Or(o.Burst, DefaultBurst)
	d := &Discovery{opts: o, start: now, switches: map[openflow.DatapathID]*member{}, linked: map[*port]struct{}{}}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, see package crypto/rand
	if d.key = slices.Clone(o.Key); len(d.key) == 0 {
		d.key = make([]byte, 32)
		_, _ = rand.Read(d.key)
	}
	d.controller = be.Uint64(id[:])
	return d
}

// port finds a port; nil if it is not up.
func (d *Discovery) port(at topology.PortRef) *port {
	if m := d.switches[at.Switch]; m != nil {
		return m.ports[at.Port]
	}
	return nil
}

// PortUp begins to probe a port. A port that is known already is probed anew.
func (d *Discovery) PortUp(at topology.PortRef, mac openflow.MAC, now time.Time) []Change {
	d.mu.Lock()
	defer d.mu.Unlock()
	changes := d.drop(d.port(at))
	m := d.switches[at.Switch]
	if m == nil {
		m = &member{dpid: at.Switch, ports: map[uint32]*port{}}
		d.switches[at.Switch] = m
	}
	p := &port{at: at, of: m, mac: mac, next: now, settle: now.Add(d.opts.Settle), into: map[*port]struct{}{}}
	m.ports[at.Port] = p
	d.schedule.add(p, d.wake(p, now))
	return changes
}

// PortDown forgets a port and the links by it.
func (d *Discovery) PortDown(at topology.PortRef) []Change {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.drop(d.port(at))
}

// SwitchDown forgets all ports of a switch and the links by them.
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

// drop removes a port, if there is one, and both directions of its link.
func (d *Discovery) drop(p *port) []Change {
	if p == nil {
		return nil
	}
	var changes []Change
	if p.out != nil {
		changes = append(changes, d.unlink(p))
	}
	for _, other := range sorted(p.into) {
		changes = append(changes, d.unlink(other))
	}
	d.schedule.remove(p)
	if delete(p.of.ports, p.at.Port); len(p.of.ports) == 0 {
		delete(d.switches, p.at.Switch)
	}
	return changes
}

// lead makes a port lead to another.
func (d *Discovery) lead(from, to *port) {
	from.out = &link{to: to.at}
	to.into[from] = struct{}{}
	d.linked[from] = struct{}{}
}

// unlink ends the link that leaves by a port. The port is not an edge port until
// it has been silent for as long as a link may be.
func (d *Discovery) unlink(p *port) Change {
	c := Change{Kind: LinkDown, Link: p.link()}
	to := d.port(p.out.to)
	delete(d.linked, p)
	p.out = nil
	if to != nil {
		delete(to.into, p)
		d.schedule.move(to, d.wake(to, time.Time{}))
	}
	d.schedule.move(p, d.wake(p, time.Time{}))
	return c
}

func (p *port) link() topology.Link {
	return topology.Link{From: p.at, To: p.out.to, Latency: time.Duration(p.out.latency), Jitter: time.Duration(p.out.jitter)}
}

// sorted lists ports by their place, so that changes come in the same order every time.
func sorted(ports map[*port]struct{}) []*port {
	return slices.SortedFunc(maps.Keys(ports), func(a, b *port) int { return a.at.Compare(b.at) })
}

// Probe appends the frame to be sent out of a port. Call it just before sending:
// the frame carries the time. It returns nil if the port has gone.
func (d *Discovery) Probe(b []byte, at topology.PortRef, now time.Time) []byte {
	d.mu.Lock()
	p := d.port(at)
	if p == nil {
		d.mu.Unlock()
		return nil
	}
	d.seq++
	p.away = append(p.away[max(0, len(p.away)+1-maxAway):], d.seq)
	pr := probe{controller: d.controller, from: at, seq: d.seq, sent: now.Sub(d.start)}
	mac := p.mac
	d.mu.Unlock()
	return appendFrame(b, mac, pr, d.key, d.opts.Lifetime)
}

// Receive takes an LLDP frame that came in by a port. control tells of the way
// between controller and switch; while it is unknown of one end there is no
// latency. The errors say why a frame was not believed; ErrForeign is the only
// harmless one.
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
	if !hmac.Equal(sum, hash(d.key, body)) {
		return nil, fmt.Errorf("%w at %v: claims to come from %v", ErrForged, at, pr.from)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.accept(pr, at, now, control)
}

// accept takes note of a true probe.
func (d *Discovery) accept(pr probe, at topology.PortRef, now time.Time, control func(openflow.DatapathID) Control) ([]Change, error) {
	from, here := d.port(pr.from), d.port(at)
	flight := now.Sub(d.start) - pr.sent
	switch {
	case from == nil || here == nil:
		return nil, nil // one of the ports has just gone down
	case flight > d.opts.MaxAge && from.arrived(pr.seq) && !from.edge && !here.edge:
		return nil, fmt.Errorf("%w at %v: number %d of %v, sent %v ago: more than %v", ErrLate, at, pr.seq, pr.from, flight, d.opts.MaxAge)
	case flight < 0 || flight > d.opts.MaxAge || !from.arrived(pr.seq):
		return nil, fmt.Errorf("%w at %v: number %d of %v, sent %v ago", ErrReplayed, at, pr.seq, pr.from, flight)
	case pr.seq < from.accepted:
		return nil, fmt.Errorf("%w at %v: number %d of %v, sent %v ago, after number %d", ErrLate, at, pr.seq, pr.from, flight, from.accepted)
	case pr.from == at:
		from.accepted, from.looped, from.edge = pr.seq, now, false
		d.schedule.move(from, d.wake(from, now))
		return nil, nil
	case d.opts.Guard != nil && (d.opts.Guard(at) || d.opts.Guard(pr.from)):
		return nil, fmt.Errorf("%w: from %v to %v", ErrGuarded, pr.from, at)
	}
	from.accepted = pr.seq
	here.heard, here.edge, from.edge = now, false, false
	var changes []Change
	if l := from.out; l != nil && l.to != at {
		if now.Sub(l.seen) < d.opts.Interval/2 {
			return nil, nil // a shared medium: the link stays with whom it was first
		}
		changes = append(changes, d.unlink(from))
	}
	fresh := from.out == nil
	if fresh {
		d.lead(from, here)
		if here.out == nil { // its probes, if any, came before the other end was known
			here.next = now
		}
	}
	from.out.seen, from.out.asked, from.out.unprobed = now, 0, false
	from.out.add(flight, control(pr.from.Switch), control(at.Switch), d.opts.Window)
	if fresh {
		changes = append(changes, Change{Kind: LinkUp, Link: from.link()})
	}
	d.schedule.move(from, d.wake(from, now))
	d.schedule.move(here, d.wake(here, now))
	return changes, nil
}

// arrived takes a probe off those under way; false if it is not one of them.
func (p *port) arrived(seq uint64) bool {
	i, is := slices.BinarySearch(p.away, seq)
	if is {
		p.away = slices.Delete(p.away, i, i+1)
	}
	return is
}

// Links lists the links, ordered by their From.
func (d *Discovery) Links() []topology.Link {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var out []topology.Link
	for _, p := range sorted(d.linked) {
		out = append(out, p.link())
	}
	return out
}

// IsEdge reports whether a port is up, has settled and shows no sign of a link,
// so that hosts may be learned and broadcasts sent there.
func (d *Discovery) IsEdge(at topology.PortRef) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	p := d.port(at)
	return p != nil && p.edge
}

// EdgePorts lists the edge ports of a switch, ascending.
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
