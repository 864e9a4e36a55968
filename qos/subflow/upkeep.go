package subflow

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/way"
	"github.com/sluice-net/sluice/service"
)

// keepUp reads counters, and does what follows from them.
func (s *Service) keepUp(ctx context.Context) {
	s.flows.forget(time.Now().Add(-s.Idle))
	s.observe(ctx)
	s.review(ctx)
	s.relieve(ctx)
	s.placeLarge(ctx)
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
	s.placer.read(flows, func(f *subflow) (bytes [directions]uint64, at time.Time) {
		for _, r := range s.Rules.Rules(f.key()) {
			switch {
			case r.Switch != f.From.Switch || r.CountersAt.IsZero():
				continue
			case r.NotifyRemoved: // that of the rule where it enters
				bytes[there] = r.Bytes
			default:
				bytes[back] = r.Bytes
			}
			at = r.CountersAt
		}
		return bytes, at
	})
}

// review moves subflows whose path has broken, and ends those that have none left or whose
// hosts have gone elsewhere. A path that may have broken, as a switch of it has left, is broken for
// those that have another.
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
		missing, certain := service.MissingLink(s.Network, hops)
		now := time.Now()
		f.mu.Lock()
		seen := f.health.Seen()
		lost := f.health.Lost(missing, certain, now)
		over := lost && (certain || now.Sub(f.health.Broken()) >= awayMost)
		f.mu.Unlock()
		if missing != "" && (seen || lost) {
			s.placer.repair(ctx, f, missing, over)
		}
	})
}

// awayMost is how long a subflow that has no other path stays on one a switch of which is away. The
// switch may have lost its connection to the controller alone, and go on to send along that path: if
// the rules of the other switches went, what it sends would end there.
const awayMost = 10 * time.Minute

// repair leads a subflow whose path has broken along the widest that there is now. If there is none,
// it ends if its path is over.
func (c *placer) repair(ctx context.Context, f *subflow, why string, over bool) {
	f.changing.Lock()
	hops := f.path()
	if missing, _ := service.MissingLink(c.Network, hops); missing == "" { // moved meanwhile, or over
		f.changing.Unlock()
		return
	}
	to, err := c.other(f)
	if err != nil {
		f.changing.Unlock()
		if over {
			c.end(f, why+", and there is no other way")
		}
		return
	}
	defer f.changing.Unlock()
	c.move(ctx, f, to, why)
}

// relieve moves subflows that a full link holds up.
func (s *Service) relieve(ctx context.Context) {
	now := time.Now()
	s.placer.relieve(now, func(f *subflow, at network.PortRef) (moved, more bool) {
		return s.placer.widen(ctx, f, at, now), time.Since(now) <= s.Interval/2
	})
}

// widen moves a subflow to a path that gives it more, if there is one.
func (c *placer) widen(ctx context.Context, f *subflow, at network.PortRef, now time.Time) bool {
	f.changing.Lock()
	defer f.changing.Unlock()
	to, ok := c.better(f, at, now)
	if !ok {
		return false
	}
	rate := f.rate()
	c.move(ctx, f, to, fmt.Sprintf("the link from %v is full, it carries %d bit/s, and another path gives %d", at, rate, to.width))
	return true
}
