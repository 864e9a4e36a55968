package classes

import (
	"slices"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/services/qos/mark"
)

// TagClass is the key of a tag of a queue in the database. Its value names the class, for people
// who read the database.
const TagClass = "sluice-class"

// These are offsets of rule priorities within the band of classes: a class of higher priority wins
// over one of lower priority, and the rule for packets with another DSCP comes last.
const (
	priorityStep = 10
	plainOffset  = 1
	queueOffset  = 5
)

// program returns the rules of a class, for each flow from its far end, so that no switch sends
// packets to a next switch that has no rules yet. Flows that differ only in their in-port have the
// same rules behind their first switch.
func program(c *Class, routes []Route, queue uint32, own uint8, userspace map[openflow.DatapathID]bool) rule.Program {
	var p rule.Program
	type at struct {
		sw  openflow.DatapathID
		key rule.Key
	}
	seen := map[at][]openflow.Action{}
	for _, r := range routes {
		for i := len(r.Hops) - 1; i >= 0; i-- {
			for _, m := range c.Flows[r.Flow].Matches {
				if i > 0 {
					m = without(m, openflow.FieldInPort)
				}
				for _, x := range hopRules(c, r.Hops[i], m, queue, own, userspace[r.Hops[i].Switch]) {
					where := at{x.Switch, x.Key()}
					if before, twice := seen[where]; !twice || !slices.Equal(before, x.Actions) {
						seen[where] = x.Actions
						p.Rules = append(p.Rules, x)
					}
				}
			}
		}
	}
	return p
}

// hopRules returns the rules that forward a class's packets on one hop, and the rules that set the
// queue, which apply wherever the packets are sent.
func hopRules(c *Class, h topology.Hop, m openflow.Match, queue uint32, own uint8, userspace bool) []rule.Rule {
	way := rule.Rule{
		Switch: h.Switch, Stage: rule.StageWay, Offset: rule.WayClass + priorityStep*uint16(LowestPriority-c.Priority), Match: m,
		Actions: []openflow.Action{openflow.Output(h.Output())},
	}
	marked := func(offset uint16, m openflow.Match, as ...openflow.Action) []rule.Rule {
		w := way
		w.Offset, w.Match = way.Offset+offset, m
		mark := w
		mark.Stage, mark.Actions = rule.StageClassify, as
		return []rule.Rule{w, mark}
	}
	if !userspace {
		return marked(queueOffset, m, openflow.SetQueue(queue))
	}
	// A packet can be marked and get its DSCP back only if that DSCP is known. The flow's other
	// packets are forwarded the same way, but without a queue, not even that of a class of lower
	// priority. They are counted separately.
	var out []rule.Rule
	if _, named := m.Get(openflow.FieldIPDSCP); !named {
		out = marked(plainOffset, m)
	}
	for _, known := range withDSCP(m, own) {
		out = append(out, marked(queueOffset, known, openflow.SetQueue(queue))...)
	}
	return out
}

// withDSCP returns the matches that narrow m to IP packets with one DSCP.
func withDSCP(m openflow.Match, dscp uint8) []openflow.Match {
	types := []uint16{0x0800, 0x86dd}
	if o, ok := m.Get(openflow.FieldEthType); ok {
		types = []uint16{uint16(o.Uint())}
	}
	var out []openflow.Match
	for _, t := range types {
		n, err := m.With(openflow.EthType(t), openflow.IPDSCP(dscp))
		if err == nil { // only IP packets have a DSCP; others get no queue
			out = append(out, n)
		}
	}
	return out
}

// without returns a match that leaves a field open.
func without(m openflow.Match, f openflow.Field) openflow.Match {
	var rest []openflow.OXM
	for o := range m.Fields() {
		if o.Field != f {
			rest = append(rest, o)
		}
	}
	n, err := openflow.NewMatch(rest...)
	if err != nil { // other fields require this field, so it stays
		return m
	}
	return n
}

// Every token bucket has a leaf for the controller's probes of links. In the leaf of
// traffic without a class, probes would be late or lost as soon as the link is full, and
// the link would count as dead. Hosts cannot get packets into the probes' leaf. Its number
// is above those of classes.
const (
	probeQueue = MaxClasses + 1
	// probeRate is the rate guaranteed to probes, in bit/s. It is enough for dozens of probes a
	// second.
	probeRate = 64_000
)

// probeLeaf returns the queue of probes at a port.
func probeLeaf(capacity uint64) ovsdb.Queue {
	return ovsdb.Queue{
		ID: probeQueue, MinRate: min(probeRate, max(minQueueRate, capacity/10)), MaxRate: capacity, Tags: map[string]string{mark.TagProbes: "yes"},
	}
}

// reservedRate returns the rate, in bit/s, that the queues of a port guarantee to other traffic
// than classes, that is, to probes and to traffic without a class.
func reservedRate(capacity uint64) uint64 { return probeLeaf(capacity).MinRate + minQueueRate }

// roots returns the queueing disciplines of one switch, by port. Each is a token bucket with the
// leaf of traffic without a class, the leaves of the classes that leave by the port, and the leaf
// of probes.
func roots(capacities map[uint32]uint64, leaves map[uint32][]ovsdb.Queue) map[uint32]ovsdb.Root {
	out := map[uint32]ovsdb.Root{}
	for port, capacity := range capacities {
		if capacity < minQueueRate {
			continue
		}
		r := ovsdb.Root{Rate: capacity, Queues: []ovsdb.Queue{{ID: 0, MinRate: minQueueRate, MaxRate: capacity, Priority: LowestPriority, Tags: map[string]string{}}}}
		r.Queues = append(append(r.Queues, leaves[port]...), probeLeaf(capacity))
		out[port] = r
	}
	return out
}
