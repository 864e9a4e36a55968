package kit

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Along describes packets that are led along a path, in one direction, by a rule on each of its
// switches. [Reversed] gives the hops for the answers.
type Along struct {
	Hops []network.Hop
	// Stage and Offset are those of the rules.
	Stage  network.Stage
	Offset uint16
	// Match selects the packets as they come to the first switch, but for the port by which
	// they come in: each rule matches that, too.
	Match openflow.Match
	// Set is what the first switch writes into the packets, which then go on as the other
	// switches match them.
	Set []openflow.OXM
	// Idle, if not zero, is for how long nothing has to come until the first switch ends its
	// rule, in whole seconds. The owner is told of it.
	Idle time.Duration
	// Treatments, if not nil, are what others promise to such packets: a class of traffic, say.
	Treatments *network.Treatments
}

// Rules returns the rules, the last switch's first. Each puts the packets into the queue that is
// promised to them at its port. Those who promise are told that the path is in use, so call it
// again from time to time, as a [Reconciler] does, and when what is promised changes: have that told
// by [network.Treatments.Subscribe].
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

// queues returns the queue that a treatment promises to the packets at each hop, zero for none.
// It reports the ports as in use, so that there are queues at them.
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
