package subflow

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/reserve"
	"github.com/sluice-net/sluice/qos/way"
)

const (
	// fullFor is how many readings in a row must show a subflow on a full link until it is
	// moved; calmFor is how many readings it is left alone then.
	fullFor = 2
	calmFor = 4
	// fullAt is the share of a link's capacity, in percent, from which on it is full; gain is
	// how wide another path has to be for it, in percent of what it carries.
	fullAt = 90
	gain   = 150
)

// keepUp reads counters, and does what follows from them.
func (s *Service) keepUp(ctx context.Context) {
	s.observe(ctx)
	s.review(ctx)
	s.relieve(ctx)
}

// observe reads what subflows have carried.
func (s *Service) observe(ctx context.Context) {
	flows := s.flows.all()
	var switches []openflow.DatapathID
	for _, f := range flows {
		switches = append(switches, f.From.Switch)
	}
	slices.Sort(switches)
	bounded, cancel := context.WithTimeout(ctx, s.Interval)
	defer cancel()
	each(slices.Compact(switches), func(d openflow.DatapathID) {
		if err := s.Rules.ReadCounters(bounded, d); err != nil {
			s.Log.Debug("reading counters", "switch", d, "error", err)
		}
	})
	rates := map[reserve.Link]uint64{}
	for _, f := range flows {
		for direction, rate := range s.read(f) {
			for _, at := range links(f.path(), direction) {
				rates[at] += rate
			}
		}
	}
	s.placer.loads.carry(rates)
}

// read takes what the switch where a subflow enters has counted, and tells the rates.
func (s *Service) read(f *subflow) (rates [directions]uint64) {
	for _, r := range s.Rules.Rules(f.key()) {
		if r.Switch != f.From.Switch || r.CountersAt.IsZero() {
			continue
		}
		direction := back
		if r.NotifyRemoved { // that of the rule where it enters
			direction = there
		}
		f.mu.Lock()
		rate, known := f.counters[direction].Read(r.Bytes, r.CountersAt)
		rates[direction] = f.counters[direction].Rate
		f.mu.Unlock()
		if known {
			s.Book.Observe(f.yields(direction), rate)
		}
	}
	return rates
}

// review moves subflows whose path has broken, and ends those that have none left or whose
// hosts have gone elsewhere.
func (s *Service) review(ctx context.Context) {
	each(s.flows.all(), func(f *subflow) {
		hops := f.path()
		if hops == nil || ctx.Err() != nil {
			return
		}
		if way.Moved(s.Network, f.Header, f.From, f.To) {
			s.placer.end(f, "a host has moved")
			return
		}
		missing, certain := way.Missing(s.Network, hops)
		f.mu.Lock()
		lost := f.health.Lost(missing, certain, time.Now())
		f.mu.Unlock()
		if lost {
			s.placer.repair(ctx, f, missing)
		}
	})
}

// repair leads a subflow whose path has broken along the widest that there is now.
func (c *placer) repair(ctx context.Context, f *subflow, why string) {
	f.changing.Lock()
	hops := f.path()
	if missing, _ := way.Missing(c.Network, hops); missing == "" { // moved meanwhile, or over
		f.changing.Unlock()
		return
	}
	to, err := c.other(f)
	if err != nil {
		f.changing.Unlock()
		c.end(f, why+", and there is no other way")
		return
	}
	defer f.changing.Unlock()
	c.move(ctx, f, to, why)
}

// relieve moves subflows that a full link holds up to paths that would give them more: one at
// a time from each link, and what that gives is known after the next readings.
func (s *Service) relieve(ctx context.Context) {
	now := time.Now()
	relieved := map[network.PortRef]bool{}
	for _, f := range s.flows.all() {
		if time.Since(now) > s.Interval/2 {
			return
		}
		at, full := s.heldUp(f, now)
		if !full || relieved[at] {
			continue
		}
		if s.placer.widen(ctx, f, at, now) {
			relieved[at] = true
		}
	}
}

// heldUp finds the full link that holds a subflow up, once enough readings in a row have shown
// one.
func (s *Service) heldUp(f *subflow, now time.Time) (at network.PortRef, full bool) {
	hops := f.path()
	i := slices.IndexFunc(way.Ports(hops), func(at network.PortRef) bool {
		u := s.Book.Use(at)
		return u.Capacity > 0 && u.Used >= u.Capacity/100*fullAt
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if i < 0 || now.Before(f.calm) {
		f.full = 0
		return at, false
	}
	f.full++
	return way.Ports(hops)[i], f.full >= fullFor
}

// widen moves a subflow to a path that gives it more, if there is one.
func (c *placer) widen(ctx context.Context, f *subflow, at network.PortRef, now time.Time) bool {
	f.changing.Lock()
	defer f.changing.Unlock()
	old := f.path()
	if old == nil {
		return false
	}
	// It counts where it is: what it carries there is not free elsewhere, and the share
	// that another path would give it is without it.
	to, err := c.other(f)
	if err != nil || slices.Equal(to.hops, old) {
		return false
	}
	f.mu.Lock()
	rate := f.rate()
	f.full = 0
	f.mu.Unlock()
	if to.width < rate/100*gain || overlaps(to.hops, at) {
		return false
	}
	f.mu.Lock()
	f.calm = now.Add(calmFor * c.Interval)
	f.mu.Unlock()
	c.move(ctx, f, to, fmt.Sprintf("the link from %v is full, it carries %d bit/s, and another path gives %d", at, rate, to.width))
	return true
}

// overlaps says whether a path has a link.
func overlaps(hops []network.Hop, at reserve.Link) bool { return slices.Contains(way.Ports(hops), at) }
