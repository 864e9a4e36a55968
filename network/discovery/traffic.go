package discovery

import (
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// traffic holds the latest reading of a port's packet counters, and what they have shown.
type traffic struct {
	askedAt        time.Time // when the latest reading was requested; zero if there is none
	received, sent uint64
	// receivedAfter and sentAfter are times after which the port has received and sent packets.
	receivedAfter, sentAfter time.Time
}

// Counted records how many packets a port has received and sent, from the answer to a request
// made at the given time. Counters that have decreased were reset.
func (d *Discovery) Counted(at topology.PortRef, received, sent uint64, asked time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.port(at)
	if p == nil || !asked.After(p.traffic.askedAt) {
		return
	}
	t := &p.traffic
	if before := t.askedAt; !before.IsZero() {
		if received > t.received {
			t.receivedAfter = before
		}
		if sent > t.sent {
			t.sentAfter = before
		}
	}
	t.askedAt, t.received, t.sent = asked, received, sent
}

// overdue returns how long after a probe the next one should have arrived. From then on the
// link's other packets decide whether it is up.
func (d *Discovery) overdue() time.Duration { return d.opts.Interval * 5 / 4 }

// nextCount returns when the counters of a link's ends should be read next.
func (d *Discovery) nextCount(l *link) time.Time {
	if at := l.probedAt.Add(d.overdue()); at.After(l.countersAt) {
		return at
	}
	return l.countersAt.Add(d.opts.Interval / 2)
}

// lastSign returns the latest time at which a link is known to have carried something: a probe
// or, if no other link leads to the same port, packets that one end sent and the other received.
// Without the counters a full link would be taken for down.
func (d *Discovery) lastSign(p, to *port) time.Time {
	sign := p.outLink.probedAt
	if to == nil || !to.traffic.receivedAfter.After(sign) || !p.traffic.sentAfter.After(sign) || len(to.linkedFrom) > 1 {
		return sign
	}
	return earliest(to.traffic.receivedAfter, p.traffic.sentAfter)
}

// minUnanswered is the number of probes that must have been sent in vain before a link can end. A
// controller that has stalled for a lifetime has sent no probes in that time, and has not read those
// that have arrived.
const minUnanswered = 2

// endIfSilent removes a link that is not known to have carried anything for a lifetime. If the link
// carries packets and only its probes are missing, endIfSilent keeps it and reports LinkUnprobed
// once.
func (d *Discovery) endIfSilent(p *port, now time.Time) (changes []Change) {
	if now.Sub(p.outLink.probedAt) <= d.opts.Lifetime || p.outLink.probesSent < minUnanswered {
		return nil
	}
	to := d.port(p.outLink.to)
	sign := d.lastSign(p, to)
	if now.Sub(sign) > d.opts.Lifetime {
		return []Change{d.unlink(p)}
	}
	to.probedAt = sign // keeps the port from becoming an edge port
	if p.outLink.unprobed {
		return nil
	}
	p.outLink.unprobed = true
	return []Change{{Kind: LinkUnprobed, Link: p.link()}}
}
