package cinema

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

const (
	// stableAfter is how long links must not have changed before channels move to shorter
	// paths, so that a flapping link moves nothing.
	stableAfter = 5 * time.Second
	// shortenInterval is how often a shorter tree is tried if no link has changed. Other channels
	// may have released bandwidth in the meantime.
	shortenInterval = 30 * time.Second
)

// situation holds what the plan of a channel is computed from: the channel, the network and the
// channel's present trees at one time.
type situation struct {
	channel  *Channel
	now      time.Time
	root     agents.Place
	from, to netip.AddrPort // of the channel's datagrams
	top      *network.Topology
	view     tree.View // what the channel may reserve
	audience audience
	groups   map[openflow.DatapathID]*tree.Groups // of the present copies
	meter    uint32
	linkMACs bool
	group    func(n int) uint32 // identifies the channel's n-th group at a switch

	planned, applied tree.Tree
	planDraining     tree.Tree
	draining         drainingTree
	shortenTriedAt   time.Time
	linksChangedAt   time.Time

	// These functions read the present state. unverified reports whether a link may be up although
	// the topology does not have it. roomTwice reports whether the port of a gateway has room for
	// twice the bit rate that is copied there. queue returns the queue of a treatment at a port.
	unverified func(tree.Edge) bool
	roomTwice  func(gateway string) bool
	queue      func(network.Carried) uint32
}

// plan holds the tree, the rules and the groups that a channel is to have in the network, how they
// are written, and the viewers whom the channel does not reach.
type plan struct {
	tree.Plan
	// ordered reports whether rules are written from the leaves to the root, because the channel
	// moves from an old tree that still forwards. The new tree is then complete before packets
	// leave the old one.
	ordered bool
	// kept is the part of the old tree that stays when the rest is removed before the new tree
	// is written; nil if nothing is removed first.
	kept *tree.Tree
	// carried lists the ports by which the channel's packets leave switches, with the treatment
	// that other services promise to the packets there.
	carried []network.Carried
	refused *refusals
	// triedShorter reports whether a shorter tree was looked for.
	triedShorter bool
}

// plan computes the plan of a channel. It changes nothing. A viewer that the channel cannot
// reach does not affect the others.
func (s *situation) plan() *plan {
	want := tree.Want{Root: s.root.At, Rate: uint64(s.channel.BitRate), Switches: slices.Sorted(maps.Keys(s.audience.copies)), Unverified: s.unverified}
	t, lacking := tree.Grow(s.top, s.view.Tree(), want, s.view.Room)
	a := s.audience.without(lacking)
	p := &plan{}
	if s.applied.Equal(t) && len(lacking) == 0 && len(t.Edges) >= 2 && s.shortenDue() {
		p.triedShorter = true
		if next, ok := tree.Shorter(s.top, t, want, s.view.Room); ok && s.intact(t) {
			t = next
		}
	}
	groups, overflow := setCopies(s.groups, a.copies)
	before, loops := s.drainingBeside(t, &a)
	queues, carried := s.queues(t, a.carried)
	p.Plan = tree.Plan{
		Tree: t, Draining: before, From: s.from, To: s.to, Rate: want.Rate, Meter: s.meter,
		Copies: groups, Queues: queues, LinkMACs: s.linkMACs, Group: s.group,
	}
	p.carried, p.refused = carried, &refusals{a.refused, overflow}
	p.ordered = s.applied.Moves(t) && s.intact(s.applied)
	if loops || tree.Bounces(s.applied, t, groups) {
		kept := s.applied.Common(t)
		p.kept = &kept
	}
	return p
}

// shortenDue reports whether it is time to try a shorter tree.
func (s *situation) shortenDue() bool {
	since := s.linksChangedAt.Add(stableAfter)
	return !s.now.Before(since) && !s.now.Before(s.draining.until) && !(s.shortenTriedAt.After(since) && s.now.Sub(s.shortenTriedAt) < shortenInterval)
}

// drainingBeside returns the draining tree: the old tree, whose rules stay for drainTime beside those
// of the channel's next tree t. It also reports whether the rules of both together might form a loop.
// No tree drains if they might, if the old tree is broken, or if gateways have no room for two
// copies. A pruned branch drains without its viewers' copies. Packets in flight on the branch then do
// not reach the guard (tree.Guard), which drops them. Open vSwitch would cache this drop for ten
// seconds, also for viewers who return in that time.
func (s *situation) drainingBeside(t tree.Tree, a *audience) (before tree.Tree, loops bool) {
	prev, draining := s.applied, s.draining
	moves := prev.Moves(t)
	switch {
	case tree.HasLoop(s.planned, s.planDraining, draining.tree, prev, t): // parts of a failed plan may be installed
		return tree.Tree{}, true
	case !moves && s.now.Before(draining.until):
		if t.Duplicates(draining.tree) && (draining.pruned || !s.roomForDouble(draining.tree, t, a)) { // viewers are back on another path
			return tree.Tree{}, false
		}
		return draining.tree, false
	case moves && prev.Root == t.Root && s.intact(prev) && (!t.Duplicates(prev) || s.roomForDouble(prev, t, a)):
		return prev, false
	case !moves && prev.Prunes(t) && s.intact(prev):
		return prev, false
	}
	return tree.Tree{}, false
}

// intact reports whether packets are still forwarded on all links of a tree. A link that the
// controller does not know because its switch is disconnected, or has just connected, still
// forwards.
func (s *situation) intact(t tree.Tree) bool {
	return !slices.ContainsFunc(t.Edges, func(e tree.Edge) bool {
		return !e.InTopology(s.top) && !e.Unverified(s.top, s.unverified)
	})
}

// roomForDouble reports whether there is room for the packets that are sent twice while two
// trees of the channel exist: on links that both have, and at the ports of gateways that are
// reached by a different path. It assumes that all channels of these gateways move at the same
// time.
func (s *situation) roomForDouble(prev, t tree.Tree, a *audience) bool {
	if !s.view.RoomForDouble(t, uint64(s.channel.BitRate), t.Shared(prev)) {
		return false
	}
	in := prev.Common(t).InPorts()
	for d, gateways := range a.gateways {
		if _, same := in[d]; same || len(a.copies[d]) == 0 {
			continue
		}
		if slices.ContainsFunc(gateways, func(name string) bool { return !s.roomTwice(name) }) {
			return false
		}
	}
	return true
}

// queues returns the queues of the ports by which the channel's packets leave over the links of tree
// t, and the treatment of the packets at each port. to holds the treatments of the copies for
// gateways, by switch. A link that leads to several gateways carries the channel once, with the
// treatment whose name is first in order.
func (s *situation) queues(t tree.Tree, to map[openflow.DatapathID][]network.Carried) (map[network.PortRef]uint32, []network.Carried) {
	by := map[openflow.DatapathID]network.PortRef{}
	for _, e := range t.Edges {
		by[e.To.Switch] = e.From
	}
	carried, queues := map[network.PortRef]network.Carried{}, map[network.PortRef]uint32{}
	var all []network.Carried
	for d, list := range to {
		for _, x := range list {
			all = append(all, x)
			for at, on := by[d]; on; at, on = by[at.Switch] {
				if emit := carried[at].Treatment; emit == "" || x.Treatment < emit {
					carried[at] = network.Carried{Treatment: x.Treatment, At: at}
				}
			}
		}
	}
	for at, x := range carried {
		all = append(all, x)
		if q := s.queue(x); q != 0 {
			queues[at] = q
		}
	}
	return queues, all
}

// setCopies returns groups that hold the given copies, by switch. A copy that is in one of the given
// groups stays in it. setCopies also returns the destinations for which the groups have no room.
func setCopies(groups map[openflow.DatapathID]*tree.Groups, copies map[openflow.DatapathID][]tree.Copy) (next map[openflow.DatapathID]*tree.Groups, overflow map[netip.AddrPort]bool) {
	next = make(map[openflow.DatapathID]*tree.Groups, len(copies))
	for d, list := range copies {
		g := groups[d].Clone()
		for _, c := range g.Set(list) {
			if overflow == nil {
				overflow = map[netip.AddrPort]bool{}
			}
			overflow[c.To] = true
		}
		next[d] = g
	}
	return next, overflow
}

// refusals is the error for a channel that does not reach all of its viewers.
type refusals struct {
	gateways map[string]error        // why gateways do not get it
	overflow map[netip.AddrPort]bool // destinations for which groups have no room
}

// Error implements error.
func (r *refusals) Error() string {
	var lines []string
	for _, gateway := range slices.Sorted(maps.Keys(r.gateways)) {
		lines = append(lines, fmt.Sprintf("viewers of gateway %s do not get it: %v", gateway, r.gateways[gateway]))
	}
	if len(r.overflow) > 0 {
		lines = append(lines, fmt.Sprintf("%d viewers do not get it: there are as many behind one switch as may be, %d", len(r.overflow), tree.MaxCopies))
	}
	return strings.Join(lines, "; ")
}

// err returns the refusals as an error, or nil if there are none.
func (r *refusals) err() error {
	if len(r.gateways)+len(r.overflow) == 0 {
		return nil
	}
	return r
}

// of returns why a port of a gateway does not get the channel, or nil.
func (r *refusals) of(gateway string, to netip.AddrPort) error {
	if err := r.gateways[gateway]; err != nil {
		return err
	}
	if r.overflow[to] {
		return fmt.Errorf("there are %d viewers of it behind one switch, as many as may be", tree.MaxCopies)
	}
	return nil
}

// drainTime is how long a channel's old tree stays in the switches after the new one is
// confirmed. Packets are still in flight on it, and a switch may use cached decisions after it
// has confirmed a rule. Open vSwitch with many cached flows uses them for a third of a second
// at most.
const drainTime = 500 * time.Millisecond

// drainingTree is the tree that a channel had before it was moved or pruned.
type drainingTree struct {
	tree  tree.Tree
	until time.Time
	// pruned reports whether the old tree differs only by branches that nobody watches any more. If
	// it is false, the channel has been moved to other links.
	pruned bool
	// waiting reports whether a task is waiting to remove the tree from the switches.
	waiting bool
}
