package discovery

import (
	"crypto/hmac"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// LoopMulticast is the destination address of loop probes, and LoopType their Ethernet type. Bridges
// forward them as any other group frame, unlike LLDP. The type is for local experiments (IEEE 802).
var LoopMulticast = openflow.MAC{0x03, 0x51, 0x1c, 0x00, 0x00, 0x02}

// LoopType is the Ethernet type of loop probes.
const LoopType = 0x88b5

// loop holds the state of a port with regard to loops through foreign bridges, which are bridges
// that the controller does not control.
type loop struct {
	since    time.Time          // when the port came up
	sentAt   time.Time          // when a loop probe was last due
	inFlight []uint64           // sequence numbers of loop probes, as in port.inFlight
	suspect  suspicion          // the latest loop probe that was not enough to block a port
	other    topology.PortRef   // the other end, while the port is blocked
	blocks   map[*port]struct{} // ports that are blocked because of this one
	until    time.Time          // when the loop counts as gone; zero unless the port is blocked
}

// suspicion is a loop probe that arrived at a port that has not settled, or came from one.
type suspicion struct {
	other topology.PortRef
	at    time.Time
}

func (l *loop) blocked() bool { return !l.until.IsZero() }

// LoopProbe appends the loop probe for a port to b. The caller must send it out of the port at once.
// LoopProbe returns nil if the port is down.
func (d *Discovery) LoopProbe(b []byte, at topology.PortRef, now time.Time) []byte {
	d.mu.Lock()
	p := d.port(at)
	if p == nil {
		d.mu.Unlock()
		return nil
	}
	d.seq++
	p.loop.inFlight = append(p.loop.inFlight[max(0, len(p.loop.inFlight)+1-maxInFlight):], d.seq)
	body := probe{controller: d.controller, from: at, seq: d.seq, sent: now.Sub(d.start)}.append(nil)
	mac := p.mac
	d.mu.Unlock()
	b = append(b, LoopMulticast[:]...)
	b = append(b, mac[:]...)
	b = be.AppendUint16(b, LoopType)
	b = append(b, oui...)
	b = append(b, body...)
	return append(b, hash(d.key, loopLabel, body)...)
}

// ReceiveLoop handles the payload of a frame of LoopType that arrived at a port. An authentic probe
// shows a loop between two edge ports, and one of them is blocked. An error says why the frame is
// refused; only ErrForeign is harmless.
//
// A probe is accepted once, within a short time, and blocks only the port that sent it or the port
// at which it has arrived. So hosts that forward probes to each other can only cause their own ports
// to be blocked, as a cable between these ports would.
func (d *Discovery) ReceiveLoop(payload []byte, at topology.PortRef, now time.Time) ([]Change, error) {
	if len(payload) < len(oui)+bodySize+hashSize || string(payload[:len(oui)]) != oui {
		return nil, ErrForeign
	}
	body := payload[len(oui):][:bodySize]
	pr := parseProbe(body)
	if pr.controller != d.controller {
		return nil, ErrForeign
	}
	if !hmac.Equal(payload[len(oui)+bodySize:][:hashSize], hash(d.key, loopLabel, body)) {
		return nil, fmt.Errorf("%w at %v: claims to come from %v", ErrForged, at, pr.from)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	from, here := d.port(pr.from), d.port(at)
	flight := now.Sub(d.start) - pr.sent
	if from == nil || here == nil {
		return nil, nil // one of the ports went down a moment ago
	}
	i, fresh := slices.BinarySearch(from.loop.inFlight, pr.seq)
	if !fresh || flight < 0 || flight > d.opts.MaxAge {
		// A loop brings a probe back more than once, so this is no sign of an attack.
		return nil, nil
	}
	from.loop.inFlight = slices.Delete(from.loop.inFlight, i, i+1)
	return d.block(from, here, now), nil
}

// block blocks one port of a loop. If one of the two is blocked already, it stays blocked instead. A
// single loop probe is enough between two edge ports. Before a port has settled, a second loop probe
// has to follow, and the link probes sent together with the two must not have arrived.
func (d *Discovery) block(from, here *port, now time.Time) []Change {
	for _, p := range []*port{from, here} {
		if p.outLink != nil || len(p.linkedFrom) > 0 {
			return nil // LLDP passes here, so it is a link
		}
	}
	until := now.Add(d.opts.Lifetime)
	for _, p := range []*port{from, here} {
		if p.loop.blocked() {
			p.loop.until = until
			d.schedule.move(p, d.nextCheck(p, now))
			return nil
		}
	}
	if !from.edge || !here.edge {
		// The first link probe of a new link may have been lost, which happens while a switch connects.
		if s := &here.loop.suspect; s.other != from.at || now.Sub(s.at) > d.opts.Lifetime {
			*s = suspicion{other: from.at, at: now}
			return nil
		} else if now.Sub(s.at) < d.opts.Settle/(2*quickProbes) {
			return nil
		}
	}
	p, other := here, from
	if d.keeps(here, from) {
		p, other = from, here
	}
	p.loop.other, p.loop.until, p.edge = other.at, until, false
	if other.loop.blocks == nil {
		other.loop.blocks = map[*port]struct{}{}
	}
	other.loop.blocks[p] = struct{}{}
	d.schedule.move(p, d.nextCheck(p, now))
	return []Change{{Kind: LoopFound, Port: p.at, Other: other.at}}
}

// keeps reports whether the port p of a loop stays open and the other one is blocked. It is true if
// Options.Keep prefers p or, without a preference, if p has been up for longer, so that a new cable
// does not interrupt a connection that worked before.
func (d *Discovery) keeps(p, other *port) bool {
	if keep := d.opts.Keep; keep != nil && keep(p.at) != keep(other.at) {
		return keep(p.at)
	}
	if !p.loop.since.Equal(other.loop.since) {
		return p.loop.since.Before(other.loop.since)
	}
	return p.at.Compare(other.at) < 0
}

// endLoop opens a blocked port whose loop has not been seen for a lifetime. It becomes an edge port
// after it has been probed quickly for a while.
func (d *Discovery) endLoop(p *port, now time.Time) []Change {
	if !p.loop.blocked() || now.Before(p.loop.until) {
		return nil
	}
	p.settle, p.next = now.Add(d.opts.Settle), now
	return d.unblock(p)
}

// unblock opens a port if it is blocked, and returns the change that reports it.
func (d *Discovery) unblock(p *port) []Change {
	if !p.loop.blocked() {
		return nil
	}
	other := p.loop.other
	if o := d.port(other); o != nil {
		delete(o.loop.blocks, p)
	}
	p.loop.other, p.loop.until = topology.PortRef{}, time.Time{}
	return []Change{{Kind: LoopGone, Port: p.at, Other: other}}
}

// leaveLoop ends the loops of a port that goes down. A port that was blocked because of it need not
// wait for a lifetime. It is probed quickly before it is used, because the loop may include further
// ports.
func (d *Discovery) leaveLoop(p *port) (changes []Change) {
	changes = d.unblock(p)
	for o := range p.loop.blocks {
		if o != p {
			o.loop.until = p.loop.since // which has passed
			d.schedule.move(o, o.loop.until)
		}
	}
	p.loop.blocks = nil
	return changes
}

// Loop is a loop through a foreign bridge: a blocked port, and the port that it is connected with.
type Loop struct {
	Blocked, Other topology.PortRef
}

// Loops returns the loops, ordered by the blocked port.
func (d *Discovery) Loops() (out []Loop) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, m := range d.switches {
		for _, p := range m.ports {
			if p.loop.blocked() {
				out = append(out, Loop{p.at, p.loop.other})
			}
		}
	}
	slices.SortFunc(out, func(a, b Loop) int { return a.Blocked.Compare(b.Blocked) })
	return out
}

// BlockedPorts returns the blocked ports of a switch, ascending.
func (d *Discovery) BlockedPorts(s openflow.DatapathID) (out []uint32) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if m := d.switches[s]; m != nil {
		for _, number := range slices.Sorted(maps.Keys(m.ports)) {
			if m.ports[number].loop.blocked() {
				out = append(out, number)
			}
		}
	}
	return out
}

// ProbeSoon probes a port soon, because a host that moves may show a loop. It does so at most a few
// times in an interval, and reports whether Tick is to be called.
func (d *Discovery) ProbeSoon(at topology.PortRef, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.port(at); p != nil && p.edge {
		if soon := latest(now, p.loop.sentAt.Add(d.opts.Interval/8)); soon.Before(p.next) {
			p.next = soon
			d.schedule.move(p, d.nextCheck(p, now))
			return true
		}
	}
	return false
}
