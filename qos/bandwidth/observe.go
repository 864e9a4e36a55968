package bandwidth

import (
	"context"
	"sync"

	"github.com/sluice-net/sluice/openflow"
)

// observe reads what flows have carried, so that promises fade into measurements.
func (s *Service) observe(ctx context.Context) {
	flows := s.all()
	var wg sync.WaitGroup
	asked := map[openflow.DatapathID]bool{}
	for _, f := range flows {
		d := f.from.Switch
		if asked[d] {
			continue
		}
		asked[d] = true
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, s.interval)
			defer cancel()
			if err := s.rules.ReadCounters(ctx, d); err != nil {
				s.log.Debug("reading counters", "switch", d, "error", err)
			}
		})
	}
	wg.Wait()
	for _, f := range flows {
		s.read(f)
	}
}

// read takes what the switch where a flow enters has counted.
func (s *Service) read(f *flow) {
	for _, r := range s.rules.Rules(f.key()) {
		if !r.NotifyRemoved || r.CountersAt.IsZero() {
			continue
		}
		s.mu.Lock()
		rate, ok := f.counter.read(r.Bytes, r.CountersAt)
		if !ok {
			s.mu.Unlock()
			continue
		}
		own, tell := s.excess(f, rate)
		s.mu.Unlock()
		s.book.Observe(f.promise(), own)
		if tell {
			s.publish("flow.exceeds", s.recordOf(f))
		}
	}
}
