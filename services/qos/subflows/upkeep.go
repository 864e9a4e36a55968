package subflows

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/flowpath"
)

// update reads the counters, and then moves, places and ends subflows accordingly.
func (s *Service) update(ctx context.Context) {
	s.flows.forget(time.Now().Add(-s.Idle))
	s.observe(ctx)
	s.review(ctx)
	s.relieve(ctx)
	s.placeLarge(ctx)
}

// observe reads how much traffic the subflows have carried.
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
	s.placer.chooser.update(flows, s.counted)
}

// counted returns the number of bytes that a subflow has carried by direction, according to the last
// reading of the counters where it enters, and the time of that reading.
func (s *Service) counted(f *subflow) (bytes [directions]uint64, at time.Time) {
	for _, r := range s.Rules.Rules(f.key()) {
		switch {
		case r.Switch != f.From.Switch || r.CountersAt.IsZero():
			continue
		case r.NotifyRemoved: // the counter of the rule where the subflow enters
			bytes[forward] = r.Bytes
		default:
			bytes[reverse] = r.Bytes
		}
		at = r.CountersAt
	}
	return bytes, at
}

// review moves subflows whose path is broken, and ends subflows that have no other path or whose
// hosts have moved. If a switch of a path is disconnected, the path may be broken. It then counts
// as broken only for subflows that have another path.
func (s *Service) review(ctx context.Context) {
	each(s.flows.all(), func(f *subflow) {
		hops := f.path()
		if hops == nil || ctx.Err() != nil {
			return
		}
		if flowpath.HostMoved(s.Network, f.Header, f.From, f.To) {
			s.placer.end(f, "a host has moved")
			return
		}
		missing, certain := kit.MissingLink(s.Network, hops)
		now := time.Now()
		f.mu.Lock()
		seen := f.health.WasIntact()
		lost := f.health.Update(missing, certain, now)
		over := lost && (certain || now.Sub(f.health.MissingSince()) >= maxDisconnected)
		f.mu.Unlock()
		if missing != "" && (seen || lost) {
			s.placer.repair(ctx, f, missing, over)
		}
	})
}

// maxDisconnected is how long a subflow without another path stays on a path with a disconnected
// switch. The switch may have lost only its connection to the controller and still forward along
// that path. If the rules of the other switches were removed, the subflow's packets would be lost
// at that switch.
const maxDisconnected = 10 * time.Minute

// repair moves a subflow whose path is broken to the widest path at present. If there is none and
// over is set, it ends the subflow.
func (c *placer) repair(ctx context.Context, f *subflow, why string, over bool) {
	f.changing.Lock()
	hops := f.path()
	if missing, _ := kit.MissingLink(c.Network, hops); missing == "" { // the subflow was moved meanwhile, or is over
		f.changing.Unlock()
		return
	}
	to, err := c.widestPath(f)
	if err != nil {
		f.changing.Unlock()
		if over {
			c.end(f, why+", and there is no other path")
		}
		return
	}
	defer f.changing.Unlock()
	c.move(ctx, f, to, why)
}

// relieve moves subflows that a full link limits, and watches those that share the link and have no
// better path yet.
func (s *Service) relieve(ctx context.Context) {
	now := time.Now()
	s.placer.chooser.relieve(now, func(f *subflow, at network.PortRef) (moved, more bool) {
		rate := f.rate()
		if moved = s.placer.widen(ctx, f, at, rate, now); !moved {
			if share := rate * 100 / max(s.Book.Use(at).Used, 1); share < aloneAt {
				s.placer.watchShared(f, at, share)
			}
		}
		return moved, time.Since(now) <= s.Interval/2
	})
}

// widen moves a subflow to a path that gives it more than the given rate, which it has on its
// present path, if there is one, and reports whether there was.
func (c *placer) widen(ctx context.Context, f *subflow, at network.PortRef, rate uint64, now time.Time) bool {
	f.changing.Lock()
	defer f.changing.Unlock()
	to, ok := c.widerPath(f, at, rate, now)
	if !ok {
		return false
	}
	c.move(ctx, f, to, fmt.Sprintf("the link from %v is full, it carries %d bit/s, and another path gives %d", at, rate, to.width))
	return true
}
