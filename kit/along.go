package kit

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Along makes the rules that forward packets along a path in one direction, one rule on each of its
// switches. [Reversed] returns the hops for the other direction.
type Along struct {
	Hops []network.Hop
	// Stage and Offset place the rules in the pipeline.
	Stage  network.Stage
	Offset uint16
	// Match selects the packets that arrive at the first switch. It does not name the input port,
	// which each rule matches in addition.
	Match openflow.Match
	// Set lists the fields that the first switch rewrites. The other switches match the rewritten
	// packets.
	Set []openflow.OXM
	// Idle, if not zero, is the idle timeout of the first switch's rule, in whole seconds. The
	// rule's owner is notified when it expires.
	Idle time.Duration
	// Treatments, if not nil, gives the packets queues with reserved bandwidth, for example those
	// of their class of traffic.
	Treatments *network.Treatments
}

// Rules returns the rules, with that of the last switch first. Each rule puts the packets into the
// queue that Treatments has reserved for them at its output port. Rules also reports to Treatments
// that the path is in use. Call Rules again at intervals, as a [Reconciler] does, and whenever a
// reservation changes, which [network.Treatments.Subscribe] reports.
func (a Along) Rules() ([]network.Rule, error) {
	if len(a.Hops) == 0 {
		return nil, fmt.Errorf("rules along a path: %w", network.ErrNoPath)
	}
	set := make([]openflow.Action, len(a.Set))
	for i, o := range a.Set {
		set[i] = openflow.SetField(o)
	}
	rules := make([]network.Rule, len(a.Hops))
	for i, queue := range a.queues() {
		hop, match := a.Hops[i], a.Match
		r := network.Rule{Switch: hop.Switch, Stage: a.Stage, Offset: a.Offset}
		var err error
		if i > 0 {
			match, err = match.With(a.Set...)
		} else {
			r.Actions, r.Idle, r.NotifyRemoved = set, a.Idle, a.Idle > 0
		}
		if err == nil {
			r.Match, err = match.With(openflow.InPort(hop.In))
		}
		if err != nil {
			return nil, fmt.Errorf("rules along a path: packets at switch %v: %w", hop.Switch, err)
		}
		if queue != 0 {
			r.Actions = append(r.Actions, openflow.SetQueue(queue))
		}
		r.Actions = append(r.Actions, openflow.Output(hop.Output()))
		rules[i] = r
	}
	slices.Reverse(rules)
	return rules, nil
}

// queues returns the number of the queue that is reserved for the packets at each hop, or zero for
// a hop without one. It also reports to Treatments that the hops' output ports are in use, so that
// queues are set up there.
func (a Along) queues() []uint32 {
	queues := make([]uint32, len(a.Hops))
	first, err := a.Match.With(openflow.InPort(a.Hops[0].In))
	if err != nil || a.Treatments == nil {
		return queues
	}
	treatment := a.Treatments.Of(first).Name
	if treatment == "" {
		return queues
	}
	carried := make([]network.Carried, len(a.Hops))
	for i, hop := range a.Hops {
		carried[i] = network.Carried{Treatment: treatment, At: network.PortRef{Switch: hop.Switch, Port: hop.Out}}
		queues[i] = a.Treatments.Queue(carried[i])
	}
	a.Treatments.Carry(carried)
	return queues
}
