package classes

import (
	"fmt"

	"github.com/sluice-net/sluice/network/topology"
)

// These are limits of the judgement. Rules and queues are not read at the same moment, and
// a userspace datapath reports what rules have matched up to a second late.
const (
	// minJudged is how many packets of an interval are enough to judge.
	minJudged = 20
	// minBadReadings is how many readings in a row have to agree.
	minBadReadings = 2
)

// finding is a change at one place: that a class has no effect there, and why; or, if
// reason is empty, that it has an effect again.
type finding struct {
	at     topology.PortRef
	reason string
	counters
}

// judge compares what the rules have put into a queue with what the queue has seen, and
// reports whether there is a finding.
func judge(e *entry, at topology.PortRef, old, now *sample, d counters) (finding, bool) {
	now.bad, now.fault = old.bad, old.fault
	reached := d.Packets + d.Drops
	reason := ""
	switch {
	case d.Plain >= minJudged && d.Plain > d.Matched:
		reason = fmt.Sprintf("%d of %d packets had another DSCP than %d: name theirs as ip_dscp in the flows, if the switch before has not left it", d.Plain, d.Plain+d.Matched, e.own)
	case d.Matched >= minJudged && reached < d.Matched/2:
		reason = fmt.Sprintf("rules put %d packets into queue %d, and it has seen %d", d.Matched, e.queue, reached)
		if e.userspace[at.Switch] {
			reason += ": the datapath is in user space, is `sluice classifier` running beside it?"
		}
	case d.Matched < minJudged:
		return finding{}, false // too little traffic to tell
	}
	if reason == "" {
		now.bad = 0
		if now.fault == "" {
			return finding{}, false
		}
		now.fault = ""
		return finding{at, "", d}, true
	}
	if now.bad++; now.bad < minBadReadings || now.fault != "" {
		return finding{}, false
	}
	now.fault = reason
	return finding{at, reason, d}, true
}

// fault returns what is wrong at the first hop where something is wrong, because faults
// behind it may be its consequences. The lock is held.
func (e *entry) fault() string {
	if !e.unmarked.IsZero() {
		return fmt.Sprintf("no classifier at port %v: packets of the class pass it unmarked and without its queue until `sluice classifier` runs beside the switch", e.unmarked)
	}
	if name := e.shadowedBy(); name != "" {
		return fmt.Sprintf("the class %s of higher priority has all packets of its flows", name)
	}
	for _, r := range e.routes {
		for _, h := range r.Hops {
			if x := e.samples[portRef(h.Switch, h.Out)]; x != nil && x.fault != "" {
				return x.fault
			}
		}
	}
	return ""
}

// updateState sets the state of a class in the switches according to its faults. The lock
// is held.
func (e *entry) updateState() {
	switch ill := e.fault(); {
	case ill != "" && (e.state == StateActive || e.state == StateIneffective):
		e.state, e.reason = StateIneffective, ill
	case ill == "" && e.state == StateIneffective:
		e.state, e.reason = StateActive, ""
	}
}
