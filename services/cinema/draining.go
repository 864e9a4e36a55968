package cinema

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
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
