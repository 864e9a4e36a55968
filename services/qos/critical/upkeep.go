package critical

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// maxAtOnce bounds the flows, or links, that are changed at once. A change mostly waits for the
// answers of a few switches, so others can be changed meanwhile.
const maxAtOnce = 64

// each calls f for every item, for at most maxAtOnce concurrently, and returns when all
// calls have returned.
func each[T any](items []T, f func(T)) { tasks.Each(items, maxAtOnce, f) }

// update reads the counters, and then moves, accepts and ends flows accordingly.
func (s *Service) update(ctx context.Context) {
	s.observe(ctx)
	s.review(ctx)
	s.relieve(ctx)
	s.retry(ctx)
	if len(s.punts.Refusals()) > 0 {
		s.punts.install(ctx)
	}
}

// meteredLinks returns the links on which best-effort flows pass the guard's meters.
func (s *Service) meteredLinks() (links []network.PortRef) {
	for _, f := range s.flows.placed() {
		if p := f.status(); !p.ended && p.State == StateBestEffort {
			links = append(links, f.guardedLinks(p.Hops)...)
		}
	}
	return links
}

// observe reads how much traffic links and flows have carried.
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

// read records the counters of a flow's rule at the switch where the flow enters.
func (s *Service) read(f *flow) {
	for _, r := range s.Rules.Rules(f.key()) {
		if !r.NotifyRemoved || r.CountersAt.IsZero() {
			continue
		}
		own, known, report := f.countTraffic(r.Bytes, r.CountersAt)
		if known {
			s.Book.Observe(f.promiseKey(), own)
		}
		if report {
			s.Publish("flow.exceeds", f.record())
		}
	}
}

// review moves the flows whose path is broken, and ends those whose hosts have moved or left. It
// chooses new paths one after the other, for the oldest flows first; the rules are then written
// concurrently. If a flow is being changed already, only the job of that flow waits.
func (s *Service) review(ctx context.Context) {
	s.punts.followMobile(ctx)
	jobs := tasks.NewCrew(maxAtOnce)
	for _, f := range s.flows.placed() {
		if ctx.Err() != nil {
			break
		}
		over := s.plan.endReason(f)
		switch {
		case over != "":
		case s.plan.broken(f, time.Now()) == "":
			continue
		case f.status().closed:
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

// relieve moves flows away from links that cannot keep their promises, because they have lost
// capacity or because of unlimited traffic. From each link it moves one flow at a time, the
// youngest first, because the effect is known only after the next readings. It takes at most half
// of the interval between readings.
func (s *Service) relieve(ctx context.Context) {
	begin := time.Now()
	relieved := map[network.PortRef]bool{}
	for _, f := range slices.Backward(s.flows.placed()) {
		if s.placer.displace(ctx, f) {
			continue
		}
		at, why, readings := s.plan.oversubscribed(f)
		if readings < pressureReadings {
			continue
		}
		if !relieved[at] && time.Since(begin) <= s.Interval/2 && s.placer.upgrade(ctx, f, why) {
			relieved[at] = true
			continue
		}
		if f.setPressure(why + ", and no other path has enough") {
			s.Publish("flow.oversubscribed", map[string]any{"flow": f.record(), "reason": why})
		}
	}
}

// retry accepts flows for which there was no capacity when they arrived. It takes at most half of
// the interval between readings.
func (s *Service) retry(ctx context.Context) {
	begin := time.Now()
	for _, f := range s.flows.placed() {
		if ctx.Err() != nil || time.Since(begin) > s.Interval/2 {
			return
		}
		if f.status().waits {
			s.placer.upgrade(ctx, f, "there is room for it now")
		}
	}
}
