package latency

import (
	"context"
	"maps"
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

// monitor sees to it that classes have an effect.
type monitor struct {
	Options
	classes *table
	plan    *planner
	queues  *queues
}

// measure reads counters, and does what follows from them.
func (m *monitor) measure(ctx context.Context) {
	m.plan.baseline.note(m.Network.Topology(), time.Now())
	m.observe(m.readAll(ctx))
}

// readers bounds the switches that are read at once.
const readers = 16

// readAll reads the counters of every switch that a class passes.
func (m *monitor) readAll(ctx context.Context) map[openflow.DatapathID]*reading {
	out := map[openflow.DatapathID]*reading{}
	m.classes.those(func(e *entry) bool {
		for _, d := range switchesOf(e.routes) {
			out[d] = &reading{}
		}
		return false
	})
	ctx, cancel := context.WithTimeout(ctx, m.Interval)
	defer cancel()
	tasks.Each(slices.Collect(maps.Keys(out)), readers, func(d openflow.DatapathID) { m.read(ctx, d, out[d]) })
	return out
}

// read asks for what rules have matched before it asks for what queues have seen: a
// packet is never in the first and not in the second because of the order.
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

// observe takes readings into the classes, tells the book how fast they are at least,
// and says where one has no effect.
func (m *monitor) observe(readings map[openflow.DatapathID]*reading) {
	for _, e := range m.classes.those(all) {
		m.assess(e, false)
		matched := counted(m.Rules.Rules(ruleKey(e.class.Name)))
		m.classes.mu.Lock()
		least, known, found := e.sampled(matched, readings)
		if len(found) > 0 {
			e.settle()
		}
		m.classes.mu.Unlock()
		if known {
			m.Book.Observe(bookKey(e.class.Name), least)
		}
		for _, f := range found {
			m.tell(e, f.at, f.reason, map[string]any{"matched": f.Matched, "reached": f.Packets + f.Drops})
		}
	}
}

// assess notes whether the packets of a class in the switches are marked wherever that is
// needed, and publishes it if that is new. Without certain it has to be seen twice that
// they are not: a class may just be moving.
func (m *monitor) assess(e *entry, certain bool) {
	m.classes.mu.Lock()
	if e.state == StateProvisioning {
		m.classes.mu.Unlock()
		return
	}
	was := e.unmarked
	now, _ := m.queues.unmarkedAt(e)
	if e.doubt = !certain && was.IsZero() && !now.IsZero() && !e.doubt; !e.doubt {
		e.unmarked = now
		e.settle()
	}
	doubt, reason := e.doubt, e.reason
	m.classes.mu.Unlock()
	switch {
	case doubt || was.IsZero() == now.IsZero():
	case now.IsZero():
		m.tell(e, was, "", map[string]any{})
	default:
		m.tell(e, now, reason, map[string]any{})
	}
}

// tell tells that a class has no effect at a place, and why; or, without a reason, that it
// has.
func (m *monitor) tell(e *entry, at place, reason string, attrs map[string]any) {
	attrs["class"], attrs["switch"], attrs["port"] = e.class.Name, at.Switch.String(), at.Port
	if reason != "" {
		attrs["reason"] = reason
		m.Log.Warn("a class has no effect", "class", e.class.Name, "switch", at.Switch, "port", at.Port, "reason", reason)
	}
	m.classes.tell(attrs)
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
func (e *entry) sampled(matched map[place]counters, readings map[openflow.DatapathID]*reading) (least uint64, known bool, found []finding) {
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
