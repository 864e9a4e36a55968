package latency

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// place is one hop of a class: a port of a switch.
type place = topology.PortRef

// counters are what has been counted of a class at one place.
type counters struct {
	// Matched packets were put into the queue by rules; Plain went the same way
	// without it, because their DSCP is not the one that is known.
	Matched, Plain uint64
	// What the queue has sent, and dropped.
	Packets, Bytes, Drops uint64
}

// minus is what was counted since an earlier reading. A counter that has gone back
// began anew.
func (c counters) minus(o counters) counters {
	since := func(now, before uint64) uint64 {
		if now < before {
			return now
		}
		return now - before
	}
	return counters{
		since(c.Matched, o.Matched), since(c.Plain, o.Plain), since(c.Packets, o.Packets), since(c.Bytes, o.Bytes), since(c.Drops, o.Drops),
	}
}

// sample are the readings of one place.
type sample struct {
	at    time.Time
	total counters
	// rate is what a second of the last interval has brought.
	rate rate
	// bad counts the readings in a row by which the queue has no effect; ill says
	// that this was told.
	bad int
	ill string
}

type rate struct{ Bits, Packets, Drops float64 }

// reading is what was read of one switch.
type reading struct {
	at     time.Time
	queues map[queueAt]openflow.QueueStats
	err    error
}

type queueAt struct{ port, queue uint32 }

// measure reads counters until ctx ends.
func (s *Service) measure(ctx context.Context) {
	tick := time.NewTicker(s.settings.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.baseline.note(s.net.Topology(), time.Now())
			s.observe(s.readAll(ctx))
		}
	}
}

// readers bounds the switches that are read at once.
const readers = 16

// readAll reads the counters of every switch that a class passes.
func (s *Service) readAll(ctx context.Context) map[openflow.DatapathID]*reading {
	s.mu.Lock()
	out := map[openflow.DatapathID]*reading{}
	for _, e := range s.classes {
		for _, d := range switchesOf(e.routes) {
			out[d] = &reading{}
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.settings.Interval)
	defer cancel()
	crew := tasks.NewCrew(readers)
	for d, r := range out {
		crew.Do(func() { s.read(ctx, d, r) })
	}
	crew.Wait()
	return out
}

// read asks for what rules have matched before it asks for what queues have seen: a
// packet is never in the first and not in the second because of the order.
func (s *Service) read(ctx context.Context, d openflow.DatapathID, r *reading) {
	if r.err = s.rules.ReadCounters(ctx, d); r.err != nil {
		return
	}
	stats, err := s.net.QueueStats(ctx, d)
	r.at, r.err = time.Now(), err
	r.queues = make(map[queueAt]openflow.QueueStats, len(stats))
	for _, q := range stats {
		r.queues[queueAt{q.Port, q.Queue}] = q
	}
}

// observe takes readings into the classes, tells the book how fast they are at least,
// and says where one has no effect.
func (s *Service) observe(readings map[openflow.DatapathID]*reading) {
	s.mu.Lock()
	entries := s.sortedClasses()
	s.mu.Unlock()
	for _, e := range entries {
		s.assess(e, false)
		matched := counted(s.rules.Rules(ruleKey(e.class.Name)))
		s.mu.Lock()
		least, known, found := s.sampled(e, matched, readings)
		s.mu.Unlock()
		if known {
			s.book.Observe(bookKey(e.class.Name), least)
		}
		for _, f := range found {
			s.tell(e, f)
		}
	}
}

// counted adds up what the rules of a class have matched at each place. With tables marks
// are rules of their own: what goes the class's way has been through its mark.
func counted(rules []rule.Installed) map[place]counters {
	type way struct {
		sw  openflow.DatapathID
		key rule.Key
	}
	marked := map[way]bool{}
	for _, r := range rules {
		if r.Stage == rule.StageClassify && len(r.Actions) > 0 {
			marked[way{r.Switch, rule.WayOf(r.Key())}] = true
		}
	}
	out := map[place]counters{}
	for _, r := range rules {
		if r.Stage == rule.StageClassify {
			continue
		}
		at, queued := outputOf(&r.Rule)
		c := out[at]
		if queued || marked[way{r.Switch, r.Key()}] {
			c.Matched += r.Packets
		} else {
			c.Plain += r.Packets
		}
		out[at] = c
	}
	return out
}

// outputOf is where a rule sends packets, and whether it puts them into a queue.
func outputOf(r *rule.Rule) (at place, queued bool) {
	at.Switch = r.Switch
	for _, a := range r.Actions {
		switch a.Type {
		case openflow.ActionSetQueue:
			queued = true
		case openflow.ActionOutput:
			at.Port = a.Arg
		}
	}
	return at, queued
}

// sampled takes the readings of one class. It returns the least of its rates, for
// the book, if any is known, and what is new about its effect. The lock is held.
func (s *Service) sampled(e *entry, matched map[place]counters, readings map[openflow.DatapathID]*reading) (least uint64, known bool, found []finding) {
	kept := map[place]*sample{}
	own := portsOf(e.routes)
	for _, at := range e.ports() {
		r := readings[at.Switch]
		old := e.samples[at]
		if r == nil || r.err != nil {
			if old != nil {
				kept[at] = old
			}
			continue
		}
		q := r.queues[queueAt{at.Port, e.queue}]
		total := matched[at]
		total.Packets, total.Bytes, total.Drops = q.TxPackets, q.TxBytes, q.TxErrors
		next := &sample{at: r.at, total: total}
		kept[at] = next
		if old == nil {
			continue
		}
		d := total.minus(old.total)
		if seconds := r.at.Sub(old.at).Seconds(); seconds > 0 {
			next.rate = rate{8 * float64(d.Bytes) / seconds, float64(d.Packets) / seconds, float64(d.Drops) / seconds}
		}
		if bits := uint64(next.rate.Bits); slices.Contains(own, at) && (!known || bits < least) {
			least, known = bits, true
		}
		if !e.unmarked.IsZero() {
			continue // what is wrong is known
		}
		if f, is := judge(e, at, old, next, d); is {
			found = append(found, f)
		}
	}
	e.samples = kept
	return least, known, found
}
