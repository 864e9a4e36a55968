package cinema

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// drainTime is how long a channel's old tree stays in the switches after the new one is
// confirmed. Packets are still in flight on it, and a switch may use cached decisions after it
// has confirmed a rule. In Open vSwitch with many cached flows this takes a third of a second
// at most.
const drainTime = 500 * time.Millisecond

// drainingTree is the tree that a channel had before it was moved or pruned.
type drainingTree struct {
	tree  tree.Tree
	until time.Time
	// pruned says that the channel was not moved: the old tree only has branches that nobody
	// watches any more.
	pruned bool
	// waiting says that a task is waiting to remove the tree from the switches.
	waiting bool
}

// drainingBeside returns the tree that drains beside a channel's next tree, and whether the
// rules of both together might form a loop. No tree drains if they might, if the old tree is
// broken, or if gateways have no room for two copies. A pruned branch drains without its
// viewers. Packets in flight on it then do not meet the guard, whose decision Open vSwitch
// would cache for ten seconds, also for viewers who return in that time.
func (tm *treeManager) drainingBeside(cs *channelState, t tree.Tree, top *network.Topology, a *audience) (before tree.Tree, loops bool) {
	tm.mu.Lock()
	prev, draining := cs.applied, cs.draining
	uncertain := []tree.Tree{cs.planned, cs.planDraining} // parts of a failed plan may be installed
	tm.mu.Unlock()
	moves := prev.Moves(t)
	switch {
	case tree.HasLoop(append(uncertain, draining.tree, prev, t)...):
		return tree.Tree{}, true
	case !moves && time.Now().Before(draining.until):
		if t.Duplicates(draining.tree) && (draining.pruned || !tm.roomForDouble(draining.tree, t, a)) { // viewers are back on another path
			return tree.Tree{}, false
		}
		return draining.tree, false
	case moves && prev.Root == t.Root && tm.intact(prev, top) && (!t.Duplicates(prev) || tm.roomForDouble(prev, t, a)):
		return prev, false
	case !moves && prev.Prunes(t) && tm.intact(prev, top):
		return prev, false
	}
	return tree.Tree{}, false
}

// intact reports whether packets are still forwarded on all links of a tree. A link that the
// controller does not know because its switch is disconnected, or has just connected, still
// forwards.
func (tm *treeManager) intact(t tree.Tree, top *network.Topology) bool {
	return !slices.ContainsFunc(t.Edges, func(e tree.Edge) bool {
		return !e.InTopology(top) && !e.Unverified(top, tm.unverified)
	})
}

// roomForDouble reports whether there is room for the packets that are sent twice while two
// trees of a channel exist: on links that both have, and at the ports of gateways that are
// reached by a different path. It assumes that all channels of these gateways move at the same
// time.
func (tm *treeManager) roomForDouble(prev, t tree.Tree, a *audience) bool {
	if !tm.reservations.RoomForDouble(t.Shared(prev)) {
		return false
	}
	in := prev.Common(t).InPorts()
	for d, gateways := range a.gateways {
		if _, same := in[d]; same || len(a.copies[d]) == 0 {
			continue
		}
		for _, name := range gateways {
			if g := tm.egress.Get(name); g != nil && !tm.viewers.roomForDouble(bounds{port: capacityAt(tm.core, g, tm.egress.List()), rate: tm.rate}) {
				return false
			}
		}
	}
	return true
}

// roomForDouble reports whether the port of a gateway has room for twice what is copied to it.
func (t *viewers) roomForDouble(b bounds) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.taken(&b)
	return b.port.check(taken, taken) == nil
}

// setDraining records the old tree and starts its drain time, if the channel was moved from it
// or branches of it were pruned. tm.mu is held.
func (tm *treeManager) setDraining(channel string, cs *channelState, before tree.Tree, moved, left bool) {
	if before.Equal(cs.draining.tree) && !cs.draining.pruned { // a tree that drains after a move keeps its own time
		left = false
	}
	cs.draining.tree = before
	switch {
	case len(before.Edges) == 0:
		cs.draining.until, cs.draining.pruned = time.Time{}, false
		return
	case !moved && !left:
		return
	}
	cs.draining.until, cs.draining.pruned = time.Now().Add(drainTime), !moved
	if !cs.draining.waiting {
		cs.draining.waiting = tm.tasks.Start(func(ctx context.Context) { tm.removeDrained(ctx, channel, cs) })
	}
}

// removeDrained removes the old tree of a channel from the switches at the end of its drain
// time.
func (tm *treeManager) removeDrained(ctx context.Context, channel string, cs *channelState) {
	for {
		tm.mu.Lock()
		left := time.Until(cs.draining.until)
		cs.draining.waiting = left > 0
		tm.mu.Unlock()
		if left <= 0 {
			break
		}
		if tasks.Sleep(ctx, left) != nil {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	_ = tm.Channels.Reconcile(ctx, channel) // the channel's condition has the error
}
