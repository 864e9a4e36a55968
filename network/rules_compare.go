package network

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/openflow"
)

// Deviation counts the things of one owner and kind that were not as declared on a switch.
type Deviation = ledger.Deviation

// comparer compares a connected switch with the ledger, the record of what owners have declared, and
// repairs the differences. It does so at a steady interval, and at once when the switch has removed
// a rule that is still wanted.
type comparer struct {
	interval time.Duration // negative if only removals cause comparisons
	slots    chan struct{} // shared by all switches; holds a token for each comparison in progress
	// wanted is set when the switch has removed a rule that is still wanted.
	wanted signal
	// deletedFlows counts the rules of default forwarding that others have deleted since the last
	// comparison.
	deletedFlows atomic.Int64

	mu    sync.Mutex
	drift DriftStats
}

// DriftStats counts the differences of a switch from what is declared, since it connected.
type DriftStats struct {
	// Comparisons counts the comparisons of the switch with what is declared for it, and Deviated
	// those that have found a difference.
	Comparisons, Deviated uint64
	// Deviations holds the sums of all deviations, ordered by owner and kind, and Last is when
	// the latest was found.
	Deviations []Deviation
	Last       time.Time
}

// Total returns the number of rules, groups and meters that were not as declared.
func (d DriftStats) Total() (n int) {
	for _, v := range d.Deviations {
		n += v.Missing + v.Changed + v.Foreign
	}
	return n
}

const (
	// maxComparisons is the number of switches that are compared at the same time. It bounds the
	// memory that their replies take.
	maxComparisons = 16
	// comparisonShare is the inverse of the largest share of the time that comparisons of a switch
	// take. A switch that takes long to list its rules is compared less often.
	comparisonShare = 20
	// minRepairPause and maxRepairPause bound the back-off between two comparisons of a switch
	// whose rules are removed again and again.
	minRepairPause = 100 * time.Millisecond
	maxRepairPause = 30 * time.Second
)

// comparisonSchedule decides when a switch is compared next. It is not safe for concurrent use.
type comparisonSchedule struct {
	interval time.Duration
	due      time.Time // of the next steady comparison; zero for none
	// pause is the back-off before another comparison that a removal causes. It is zero unless
	// the switch has deviated lately.
	pause     time.Duration
	ended     time.Time // end of the last comparison
	deviated  time.Time // end of the last comparison that has found a deviation, or has failed
	requested bool      // a removal has asked for a comparison
}

// start sets the time of the first comparison. fraction, from 0 to 1, spreads the switches over
// the interval.
func (c *comparisonSchedule) start(now time.Time, fraction float64) {
	if c.interval > 0 {
		c.due = now.Add(time.Duration(fraction * float64(c.interval)))
	}
}

// next returns the time of the next comparison, or false if there is none.
func (c *comparisonSchedule) next() (time.Time, bool) {
	if !c.requested {
		return c.due, !c.due.IsZero()
	}
	if at := c.ended.Add(c.pause); c.due.IsZero() || at.Before(c.due) {
		return at, true
	}
	return c.due, true
}

// finished records a comparison that found deviations or none, or failed. It returns the back-off
// before a removal causes another one.
func (c *comparisonSchedule) finished(began, now time.Time, deviated, failed bool) time.Duration {
	least := comparisonShare * now.Sub(began)
	if c.interval > 0 {
		c.due = now.Add(max(c.interval, least))
	}
	const calm = 10 // after calm times the back-off without a deviation, the back-off begins anew
	recent := !c.deviated.IsZero() && now.Sub(c.deviated) < calm*c.pause
	switch {
	case (deviated || failed) && recent:
		c.pause = max(least, min(2*c.pause, maxRepairPause))
	case deviated || failed:
		c.pause = max(least, minRepairPause)
	case !recent:
		c.pause = 0
	}
	if c.ended = now; deviated || failed {
		c.deviated = now
	}
	c.requested = failed
	return c.pause
}

// compareRules compares the switch with the ledger until ctx ends.
func (s *Switch) compareRules(ctx context.Context) {
	schedule := comparisonSchedule{interval: s.comparer.interval}
	schedule.start(time.Now(), rand.Float64())
	for {
		var timer <-chan time.Time
		if at, ok := schedule.next(); ok {
			timer = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return
		case <-s.comparer.wanted:
			schedule.requested = true
			continue
		case <-timer:
		}
		select {
		case <-ctx.Done():
			return
		case s.comparer.slots <- struct{}{}:
		}
		began := time.Now()
		deviations, err := s.compare(ctx)
		<-s.comparer.slots
		pause := schedule.finished(began, time.Now(), len(deviations) > 0, err != nil)
		if ctx.Err() != nil || s.ch.ended() {
			return
		}
		s.comparer.count(deviations, schedule.ended)
		switch {
		case len(deviations) > 0:
			s.n.publisher.drifted(s.dpid, deviations, pause, err)
		case err != nil:
			s.logLimiter.Warn(s.n.cfg.Log, "comparing a switch with what is declared", "switch", s.dpid, "error", err)
		}
	}
}

// compare compares the switch with the ledger once, and repairs the differences. After an error the
// switch is compared again later.
func (s *Switch) compare(ctx context.Context) ([]Deviation, error) {
	ctx, cancel := context.WithTimeout(ctx, s.n.cfg.HandshakeTimeout)
	defer cancel()
	comparison := s.n.ledger.Compare(s.dpid)
	defer comparison.End()
	changedFlows := s.flows.Watch()
	// Without a barrier, a switch may list its rules before it has made the changes that were sent
	// earlier.
	barrier, err := s.ch.sendBatch(nil)
	if err != nil {
		return nil, err
	}
	if _, err := s.ch.wait(ctx, barrier); err != nil {
		return nil, err
	}
	found, done, err := readFound(ctx, s)
	defer done()
	if err != nil {
		return nil, err
	}
	var flows Deviation
	found.Rules, flows = s.n.forwarding.compare(s, found.Rules, changedFlows)
	drift := comparison.Drift(found)
	flows.Missing = int(s.comparer.deletedFlows.Swap(0))
	if flows.Missing+flows.Changed+flows.Foreign > 0 {
		drift.Deviations = append(drift.Deviations, flows)
	}
	for _, e := range drift.Expired {
		reason := openflow.RemovedIdle
		if e.Idle == 0 {
			reason = openflow.RemovedHard
		}
		s.n.owners.notifyRemoved(e.Owner, Removed{Installed: e.Installed, Reason: reason})
	}
	numRefused := 0
	for ops := drift.Ops; len(ops) > 0; ops = s.n.ledger.Overtaken(s.dpid, ops) {
		refused, err := s.n.owners.installer.send(ctx, s, ops)
		if err != nil {
			return drift.Deviations, err
		}
		comparison.Repaired(ops, refused)
		numRefused += len(refused)
	}
	if numRefused > 0 {
		return drift.Deviations, fmt.Errorf("switch %v: %w: %d rules, groups or meters that it lacks", s.dpid, ErrRefused, numRefused)
	}
	return drift.Deviations, nil
}

// count adds the result of a comparison to the totals.
func (c *comparer) count(deviations []Deviation, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drift.Comparisons++
	if len(deviations) > 0 {
		c.drift.Deviated++
	}
	for _, d := range deviations {
		i, known := slices.BinarySearchFunc(c.drift.Deviations, d, ledger.CompareDeviations)
		if !known {
			c.drift.Deviations = slices.Insert(c.drift.Deviations, i, Deviation{Owner: d.Owner, Object: d.Object})
		}
		sum := &c.drift.Deviations[i]
		sum.Missing, sum.Changed, sum.Foreign = sum.Missing+d.Missing, sum.Changed+d.Changed, sum.Foreign+d.Foreign
		c.drift.Last = now
	}
}

// stats returns the totals.
func (c *comparer) stats() DriftStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.drift
	out.Deviations = slices.Clone(out.Deviations)
	return out
}
