package latency

import (
	"fmt"

	"github.com/sluice-net/sluice/network/topology"
)

// Bounds of the judgement. Rules and queues are not read at the same moment, and a
// userspace datapath reports what rules have matched up to a second late.
const (
	// judgedFrom is how many packets of an interval say something.
	judgedFrom = 20
	// badReadings is how many readings in a row have to agree.
	badReadings = 2
)

// finding is news about a class at one place: that it has no effect there, and why;
// or, with an empty reason, that it has.
type finding struct {
	at     topology.PortRef
	reason string
	counters
}

// judge compares what the rules have put into a queue with what the queue has seen.
func judge(e *entry, at topology.PortRef, old, now *sample, d counters) (finding, bool) {
	now.bad, now.ill = old.bad, old.ill
	reached := d.Packets + d.Drops
	reason := ""
	switch {
	case d.Plain >= judgedFrom && d.Plain > d.Matched:
		reason = fmt.Sprintf("%d of %d packets had another DSCP than %d: name theirs as ip_dscp in the flows, if the switch before has not left it", d.Plain, d.Plain+d.Matched, e.own)
	case d.Matched >= judgedFrom && reached < d.Matched/2:
		reason = fmt.Sprintf("rules put %d packets into queue %d, and it has seen %d", d.Matched, e.queue, reached)
		if e.userspace[at.Switch] {
			reason += ": the datapath is in user space, is `sluice classifier` running beside it?"
		}
	case d.Matched < judgedFrom:
		return finding{}, false // too little traffic to tell
	}
	if reason == "" {
		now.bad = 0
		if now.ill == "" {
			return finding{}, false
		}
		now.ill = ""
		return finding{at, "", d}, true
	}
	if now.bad++; now.bad < badReadings || now.ill != "" {
		return finding{}, false
	}
	now.ill = reason
	return finding{at, reason, d}, true
}

// illness is what is wrong at the first hop where something is: what is wrong behind it
// may follow from that. The lock is held.
func (e *entry) illness() string {
	if !e.unmarked.IsZero() {
		return fmt.Sprintf("no classifier at port %v: packets of the class pass it unmarked and without its queue until `sluice classifier` runs beside the switch", e.unmarked)
	}
	if name := e.shadow(); name != "" {
		return fmt.Sprintf("the class %s of higher priority has all packets of its flows", name)
	}
	for _, r := range e.routes {
		for _, h := range r.Hops {
			if x := e.samples[portRef(h.Switch, h.Out)]; x != nil && x.ill != "" {
				return x.ill
			}
		}
	}
	return ""
}

// settle has the state of a class that is in the switches follow its illness. The lock is
// held.
func (e *entry) settle() {
	switch ill := e.illness(); {
	case ill != "" && (e.state == StateActive || e.state == StateIneffective):
		e.state, e.reason = StateIneffective, ill
	case ill == "" && e.state == StateIneffective:
		e.state, e.reason = StateActive, ""
	}
}
