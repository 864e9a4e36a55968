package classes

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// counters holds the counts of a class's packets at one place.
type counters struct {
	// Matched counts packets that rules put into the queue. Plain counts packets that took the same
	// route without the queue, because their DSCP is not the class's known one.
	Matched, Plain uint64
	// These fields count the packets and bytes that the queue has sent, and the packets that it has
	// dropped.
	Packets, Bytes, Drops uint64
}

// since returns the increase of the counters since an earlier reading o. A counter that has
// decreased was restarted, and counts from zero.
func (c counters) since(o counters) counters {
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

// sample holds the latest readings of one place.
type sample struct {
	at    time.Time
	total counters
	// rate is the rate of the last interval, per second.
	rate rate
	// bad counts the consecutive readings that showed the queue without effect. fault is the fault
	// that was reported last; "" if there is none.
	bad   int
	fault string
}

type rate struct{ Bits, Packets, Drops float64 }

// reading holds the queue counters of one switch, or the error of reading them.
type reading struct {
	at     time.Time
	queues map[queueAt]openflow.QueueStats
	err    error
}

type queueAt struct{ port, queue uint32 }

// monitor checks that classes have an effect.
type monitor struct {
	Options
	classes *table
	plan    *planner
	queues  *queues
}

// measure reads the counters and updates the classes accordingly.
func (m *monitor) measure(ctx context.Context) {
	m.plan.baseline.update(m.Network.Topology(), time.Now())
	m.observe(m.readAll(ctx))
}

// maxReads bounds the switches that are read at once.
const maxReads = 16

// readAll reads the counters of every switch that a class passes.
func (m *monitor) readAll(ctx context.Context) map[openflow.DatapathID]*reading {
	out := map[openflow.DatapathID]*reading{}
	m.classes.filter(func(e *entry) bool {
		for _, d := range switchesOf(e.routes) {
			out[d] = &reading{}
		}
		return false
	})
	ctx, cancel := context.WithTimeout(ctx, m.Interval)
	defer cancel()
	tasks.Each(slices.Collect(maps.Keys(out)), maxReads, func(d openflow.DatapathID) { m.read(ctx, d, out[d]) })
	return out
}

// read reads the counters of rules before those of queues. A packet that a rule has counted has
// then reached its queue, too, by the time the queue is read.
func (m *monitor) read(ctx context.Context, d openflow.DatapathID, r *reading) {
	if r.err = m.Rules.ReadCounters(ctx, d); r.err != nil {
		return
	}
	stats, err := m.Network.QueueStats(ctx, d)
	r.at, r.err = time.Now(), err
	r.queues = make(map[queueAt]openflow.QueueStats, len(stats))
	for _, q := range stats {
		r.queues[queueAt{q.Port, q.Queue}] = q
	}
}

// observe adds readings to the classes, passes each class's least rate to the book of promises, and
// reports where a class has no effect.
func (m *monitor) observe(readings map[openflow.DatapathID]*reading) {
	for _, e := range m.classes.filter(all) {
		m.assess(e, false)
		matched := matchedCounts(m.Rules.Rules(ruleKey(e.class.Name)))
		m.classes.mu.Lock()
		least, known, found := e.addReadings(matched, readings)
		if len(found) > 0 {
			e.updateState()
		}
		m.classes.mu.Unlock()
		if known {
			m.Book.Observe(bookKey(e.class.Name), least)
		}
		for _, f := range found {
			m.report(e, f.at, f.reason, map[string]any{"matched": f.Matched, "reached": f.Packets + f.Drops})
		}
	}
}

// assess records whether the packets of an installed class are marked wherever that is needed, and
// publishes changes. Unless certain is set, a missing mark has to be seen twice, because the class
// may just be moving.
func (m *monitor) assess(e *entry, certain bool) {
	m.classes.mu.Lock()
	if e.state == StateProvisioning {
		m.classes.mu.Unlock()
		return
	}
	was := e.unmarked
	now, _ := m.queues.unmarkedAt(e)
	if e.suspected = !certain && was.IsZero() && !now.IsZero() && !e.suspected; !e.suspected {
		e.unmarked = now
		e.updateState()
	}
	doubt, reason := e.suspected, e.reason
	m.classes.mu.Unlock()
	switch {
	case doubt || was.IsZero() == now.IsZero():
	case now.IsZero():
		m.report(e, was, "", map[string]any{})
	default:
		m.report(e, now, reason, map[string]any{})
	}
}

// report publishes that a class has no effect at a place, for the given reason. With an empty
// reason, it publishes that the class has an effect there again.
func (m *monitor) report(e *entry, at place, reason string, attrs map[string]any) {
	attrs["class"], attrs["switch"], attrs["port"] = e.class.Name, at.Switch.String(), at.Port
	if reason != "" {
		attrs["reason"] = reason
		m.Log.Warn("a class has no effect", "class", e.class.Name, "switch", at.Switch, "port", at.Port, "reason", reason)
	}
	m.classes.publishEffect(attrs)
}

// matchedCounts adds up the packets that the rules of a class have matched at each place. On
// switches with several tables, the rules that set the queue are separate from those that forward.
// Every packet that a forwarding rule counts has then passed the rule that sets the queue.
func matchedCounts(rules []rule.Installed) map[place]counters {
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

// outputOf returns the port to which a rule sends packets, and reports whether it puts them
// into a queue.
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

// addReadings adds the readings of one class. It returns the least of the class's rates on its own
// routes, in bit/s, whether any is known, and the changes of the class's effect. The lock is held.
func (e *entry) addReadings(matched map[place]counters, readings map[openflow.DatapathID]*reading) (least uint64, known bool, found []finding) {
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
		d := total.since(old.total)
		if seconds := r.at.Sub(old.at).Seconds(); seconds > 0 {
			next.rate = rate{8 * float64(d.Bytes) / seconds, float64(d.Packets) / seconds, float64(d.Drops) / seconds}
		}
		if bits := uint64(next.rate.Bits); slices.Contains(own, at) && (!known || bits < least) {
			least, known = bits, true
		}
		if !e.unmarked.IsZero() {
			continue // the fault is known already
		}
		if f, ok := judge(e, at, old, next, d); ok {
			found = append(found, f)
		}
	}
	e.samples = kept
	return least, known, found
}
