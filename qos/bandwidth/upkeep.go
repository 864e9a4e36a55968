package bandwidth

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// maxAtOnce is how many flows, or links, are changed at once. A change is mostly
// waiting for the answers of a few switches, and others are idle meanwhile.
const maxAtOnce = 64

// each calls f for every item, for maxAtOnce at once, and returns when all calls have.
func each[T any](items []T, f func(T)) { tasks.Each(items, maxAtOnce, f) }

// keepUp reads counters, and does what follows from them.
func (s *Service) keepUp(ctx context.Context) {
	s.observe(ctx)
	s.review(ctx)
	s.relieve(ctx)
	s.retry(ctx)
	if len(s.asker.Refusals()) > 0 {
		s.asker.ask(ctx)
	}
}

// heldBack are the links on which flows pass the meters of best effort.
func (s *Service) heldBack() (links []network.PortRef) {
	for _, f := range s.flows.placed() {
		if p := f.now(); !p.ended && p.State == StateBestEffort {
			links = append(links, f.guarded(p.Hops)...)
		}
	}
	return links
}

// observe reads what links and flows have carried.
func (s *Service) observe(ctx context.Context) {
	flows := s.flows.placed()
	switches := map[openflow.DatapathID]bool{}
	for _, f := range flows {
		switches[f.From.Switch] = true
	}
	bounded, cancel := context.WithTimeout(ctx, s.Interval)
	defer cancel()
	s.Book.Measure(bounded, s.Network)
	each(slices.Collect(maps.Keys(switches)), func(d openflow.DatapathID) {
		if err := s.Rules.ReadCounters(bounded, d); err != nil {
			s.Log.Debug("reading counters", "switch", d, "error", err)
		}
	})
	for _, f := range flows {
		s.read(f)
	}
}

// read takes what the switch where a flow enters has counted.
func (s *Service) read(f *flow) {
	for _, r := range s.Rules.Rules(f.key()) {
		if !r.NotifyRemoved || r.CountersAt.IsZero() {
			continue
		}
		own, known, tell := f.read(r.Bytes, r.CountersAt)
		if known {
			s.Book.Observe(f.promise(), own)
		}
		if tell {
			s.Publish("flow.exceeds", f.record())
		}
	}
}

// review moves the flows whose path has broken, and ends those whose hosts have gone
// elsewhere. New places are chosen one after the other, those first that came first;
// the rules are then written at the same time. A flow that is being changed already is
// waited for beside the others.
func (s *Service) review(ctx context.Context) {
	s.asker.follow(ctx)
	jobs := tasks.NewCrew(maxAtOnce)
	for _, f := range s.flows.placed() {
		if ctx.Err() != nil {
			break
		}
		over := s.plan.gone(f)
		switch {
		case over != "":
		case s.plan.broken(f, time.Now()) == "":
			continue
		case f.now().closed:
			over = "its connection was closed"
		case f.changing.TryLock():
			jobs.Do(s.placer.repair(ctx, f))
			continue
		}
		jobs.Do(func() {
			if over != "" {
				s.placer.end(f, over)
				return
			}
			f.changing.Lock()
			s.placer.repair(ctx, f)()
		})
	}
	jobs.Wait()
}

// relieve moves flows away from links that cannot keep what was promised there,
// because they have less capacity than they had, or of traffic that nobody holds back. Of
// one link one flow is moved at a time, the youngest first: what that gives is known after
// the next readings. It takes half of the time until those at most.
func (s *Service) relieve(ctx context.Context) {
	begin := time.Now()
	relieved := map[network.PortRef]bool{}
	for _, f := range slices.Backward(s.flows.placed()) {
		if s.placer.displace(ctx, f) {
			continue
		}
		at, why, readings := s.plan.oversubscribed(f)
		if readings < pressedFor {
			continue
		}
		if !relieved[at] && time.Since(begin) <= s.Interval/2 && s.placer.upgrade(ctx, f, why) {
			relieved[at] = true
			continue
		}
		if f.press(why + ", and no other path has enough") {
			s.Publish("flow.oversubscribed", map[string]any{"flow": f.record(), "reason": why})
		}
	}
}

// retry accepts flows for which there was no room when they came. It takes half of the
// time until the next reading at most.
func (s *Service) retry(ctx context.Context) {
	begin := time.Now()
	for _, f := range s.flows.placed() {
		if ctx.Err() != nil || time.Since(begin) > s.Interval/2 {
			return
		}
		if f.now().waits {
			s.placer.upgrade(ctx, f, "there is room for it now")
		}
	}
}
