package classes

import (
	"fmt"

	"github.com/sluice-net/sluice/network/topology"
)

// These are limits of judge. Rules and queues are not read at the same moment, and a userspace
// datapath reports what rules have matched up to a second late.
const (
	// minJudged is the least number of packets in an interval that judge draws a conclusion from.
	minJudged = 20
	// minBadReadings is the number of consecutive readings that have to show a fault.
	minBadReadings = 2
)

// finding is a change of a class's effect at one place. reason says why the class has no effect
// there. If reason is empty, the class has an effect again.
type finding struct {
	at     topology.PortRef
	reason string
	counters
}

// judge compares the packets that the rules have put into a class's queue with those that the queue
// has seen, and reports whether there is a finding. d holds the difference between the two samples.
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

// fault returns a description of what is wrong with a class, or "". Of several faulty hops it
// describes the first, because faults behind it may be its consequences. The lock is held.
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

// updateState sets the state of an installed class according to its faults. The lock is held.
func (e *entry) updateState() {
	switch ill := e.fault(); {
	case ill != "" && (e.state == StateActive || e.state == StateIneffective):
		e.state, e.reason = StateIneffective, ill
	case ill == "" && e.state == StateIneffective:
		e.state, e.reason = StateActive, ""
	}
}
