package discovery

import (
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// Due is what is to be done at one time.
type Due struct {
	// Probe are the ports to be probed now, by calling Probe for each.
	Probe []topology.PortRef
	// Count are ports whose counters are to be read and told to Counted: those at the
	// ends of links whose probes are overdue.
	Count []topology.PortRef
	// Changes are what the passing of time has changed.
	Changes []Change
	// Next is when to ask again.
	Next time.Time
}

// looks is how many ports one Tick looks at for each probe that it may ask for: many
// have nothing to be sent.
const looks = 8

// Tick tells what is due. What one call leaves is told by the next.
func (d *Discovery) Tick(now time.Time) Due {
	d.mu.Lock()
	defer d.mu.Unlock()
	due := Due{Next: now.Add(d.opts.Interval)}
	d.schedule.begin(now)
	for range looks * d.opts.Burst {
		p := d.schedule.turn(now)
		if p == nil || len(due.Probe) >= d.opts.Burst {
			break
		}
		d.look(p, now, &due)
		d.schedule.move(p, d.wake(p, now))
		d.schedule.done()
	}
	if next, any := d.schedule.next(now); any {
		due.Next = earliest(due.Next, next)
	}
	return due
}

// look finds out what is due at a port.
func (d *Discovery) look(p *port, now time.Time, due *Due) {
	if p.out != nil {
		due.Changes = append(due.Changes, d.end(p, now)...)
	}
	if !p.edge && !now.Before(d.quiet(p)) {
		p.edge = true
		due.Changes = append(due.Changes, Change{Kind: EdgeUp, Port: p.at})
	}
	if !now.Before(p.next) {
		due.Probe = append(due.Probe, p.at)
		if p.out != nil {
			p.out.asked++
		}
		p.next = now.Add(d.pause(p, now))
	}
	if p.out != nil && !now.Before(d.doubts(p.out)) {
		p.out.counted = now
		due.Count = append(due.Count, p.at, p.out.to)
	}
}

// wake is when a port is to be looked at next.
func (d *Discovery) wake(p *port, now time.Time) time.Time {
	wake := p.next
	if p.out != nil {
		wake = earliest(wake, d.doubts(p.out))
		if dead := p.out.seen.Add(d.opts.Lifetime + 1); dead.After(now) {
			wake = earliest(wake, dead)
		}
	}
	if !p.edge {
		wake = earliest(wake, d.quiet(p))
	}
	return wake
}

// never is later than any time that is asked for.
var never = time.Unix(1<<40, 0)

// quiet is from when on a port shows no sign of a link or a loop any more.
func (d *Discovery) quiet(p *port) time.Time {
	if p.out != nil || len(p.into) > 0 {
		return never
	}
	from := p.settle
	for _, sign := range []time.Time{p.heard, p.looped} {
		if !sign.IsZero() {
			from = latest(from, sign.Add(d.opts.Lifetime+1))
		}
	}
	return from
}

// pause is the time to a port's next probe. Settled ports are spread over the
// interval by their place, so that ports that came up together drift apart.
func (d *Discovery) pause(p *port, now time.Time) time.Duration {
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
