package discovery

import (
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// traffic is what the counters of a port have said of it.
type traffic struct {
	asked          time.Time // for the latest reading; zero if there is none
	received, sent uint64
	// receives and sends are times after which the port has received and sent packets.
	receives, sends time.Time
}

// Counted tells how many packets a port has received and sent, as the switch answered
// when it was asked at that time. Counters that have gone back began anew.
func (d *Discovery) Counted(at topology.PortRef, received, sent uint64, asked time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.port(at)
	if p == nil || !asked.After(p.traffic.asked) {
		return
	}
	t := &p.traffic
	if before := t.asked; !before.IsZero() {
		if received > t.received {
			t.receives = before
		}
		if sent > t.sent {
			t.sends = before
		}
	}
	t.asked, t.received, t.sent = asked, received, sent
}

// overdue is how long after a probe the next one should have arrived. From then on it
// matters whether the link carries other packets.
func (d *Discovery) overdue() time.Duration { return d.opts.Interval * 5 / 4 }

// doubts is when a link should next be looked at by its counters.
func (d *Discovery) doubts(l *link) time.Time {
	if at := l.seen.Add(d.overdue()); at.After(l.counted) {
		return at
	}
	return l.counted.Add(d.opts.Interval / 2)
}

// sign is the latest time at which a link is known to have carried something: a probe or,
// if nothing else leads to where it leads, what one end sent while the other received.
// Probes alone would have a link that is merely full taken for dead.
func (d *Discovery) sign(p, to *port) time.Time {
	sign := p.out.seen
	if to == nil || !to.traffic.receives.After(sign) || !p.traffic.sends.After(sign) || len(to.into) > 1 {
		return sign
	}
	return earliest(to.traffic.receives, p.traffic.sends)
}

// unanswered is how many probes without an answer end a link at the least: a controller that has stood
// still for a lifetime has sent none meanwhile, and has not read what has arrived.
const unanswered = 2

// end ends a link of which there has been no sign for a lifetime.
func (d *Discovery) end(p *port, now time.Time) (changes []Change) {
	if now.Sub(p.out.seen) <= d.opts.Lifetime || p.out.asked < unanswered {
		return nil
	}
	to := d.port(p.out.to)
	sign := d.sign(p, to)
	if now.Sub(sign) > d.opts.Lifetime {
		return []Change{d.unlink(p)}
	}
	to.heard = sign // it is no edge port
	if p.out.unprobed {
		return nil
	}
	p.out.unprobed = true
	return []Change{{Kind: LinkUnprobed, Link: p.link()}}
}
