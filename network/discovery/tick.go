package discovery

import (
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// Due holds what the caller of Tick has to do.
type Due struct {
	// Probe lists the ports to be probed now, by a call of Probe for each.
	Probe []topology.PortRef
	// LoopProbe lists those ports of Probe that have no link. To look for loops there, the caller
	// also calls LoopProbe for each.
	LoopProbe []topology.PortRef
	// Count lists the ports whose counters are to be read and passed to Counted: the ends of
	// links whose probes are overdue.
	Count []topology.PortRef
	// Changes are the changes caused by the passing of time.
	Changes []Change
	// Next is when to call Tick again.
	Next time.Time
}

// checksPerProbe is how many ports one Tick checks for each probe that it may return: many ports
// have nothing to send.
const checksPerProbe = 8

// Tick returns what is due. What does not fit into one call is returned by the next.
func (d *Discovery) Tick(now time.Time) Due {
	d.mu.Lock()
	defer d.mu.Unlock()
	due := Due{Next: now.Add(d.opts.Interval)}
	d.schedule.startTurns(now)
	for range checksPerProbe * d.opts.Burst {
		p := d.schedule.turn(now)
		if p == nil || len(due.Probe) >= d.opts.Burst {
			break
		}
		d.check(p, now, &due)
		d.schedule.move(p, d.nextCheck(p, now))
		d.schedule.endTurn()
	}
	if next, any := d.schedule.next(now); any {
		due.Next = earliest(due.Next, next)
	}
	return due
}

// check adds to due what is due at a port.
func (d *Discovery) check(p *port, now time.Time, due *Due) {
	if p.outLink != nil {
		due.Changes = append(due.Changes, d.endIfSilent(p, now)...)
	}
	due.Changes = append(due.Changes, d.endLoop(p, now)...)
	if !p.edge && !now.Before(d.edgeSince(p)) {
		p.edge = true
		due.Changes = append(due.Changes, Change{Kind: EdgeUp, Port: p.at})
	}
	if !now.Before(p.next) {
		due.Probe = append(due.Probe, p.at)
		if p.outLink == nil && len(p.linkedFrom) == 0 {
			due.LoopProbe = append(due.LoopProbe, p.at)
			p.loop.sentAt = now
		}
		if p.outLink != nil {
			p.outLink.probesSent++
		}
		p.next = now.Add(d.probeInterval(p, now))
	}
	if p.outLink != nil && !now.Before(d.nextCount(p.outLink)) {
		p.outLink.countersAt = now
		due.Count = append(due.Count, p.at, p.outLink.to)
	}
}

// nextCheck returns when a port is to be checked next.
func (d *Discovery) nextCheck(p *port, now time.Time) time.Time {
	wake := p.next
	if p.outLink != nil {
		wake = earliest(wake, d.nextCount(p.outLink))
		if dead := p.outLink.probedAt.Add(d.opts.Lifetime + 1); dead.After(now) {
			wake = earliest(wake, dead)
		}
	}
	if p.loop.blocked() {
		wake = earliest(wake, p.loop.until)
	}
	if !p.edge {
		wake = earliest(wake, d.edgeSince(p))
	}
	return wake
}

// never is later than all times in use.
var never = time.Unix(1<<40, 0)

// edgeSince returns the time from which a port shows no sign of a link or a loop.
func (d *Discovery) edgeSince(p *port) time.Time {
	if p.outLink != nil || len(p.linkedFrom) > 0 || p.loop.blocked() {
		return never
	}
	from := p.settle
	for _, sign := range []time.Time{p.probedAt, p.loopedAt} {
		if !sign.IsZero() {
			from = latest(from, sign.Add(d.opts.Lifetime+1))
		}
	}
	return from
}

// probeInterval returns the time to a port's next probe. The intervals of settled ports differ
// with their switch and number, so that ports which came up together drift apart.
func (d *Discovery) probeInterval(p *port, now time.Time) time.Duration {
	if now.Before(p.settle) {
		return d.opts.Settle / quickProbes
	}
	spread := (uint64(p.at.Switch)*31 + uint64(p.at.Port)) * 0x9e3779b97f4a7c15 >> 56 // 0 to 255
	return d.opts.Interval - d.opts.Interval*time.Duration(spread)/2048
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
