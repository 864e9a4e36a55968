package plugin

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-net/sluice/cinema/tree"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
)

// underWay is how long the former way of a channel stays after its new one is confirmed: packets
// are still on it, and a switch may go by what it remembers after it has confirmed a rule. In
// Open vSwitch with many cached flows that is a third of a second at most.
const underWay = 500 * time.Millisecond

// former is the way that a channel had before it was moved.
type former struct {
	tree  tree.Tree
	until time.Time
	// left says that nobody watches what is not of the next way any more: it was not moved.
	left bool
	// ending is true while somebody waits to have it taken out of the switches.
	ending bool
}

// beside is the way that stays beside the next one of a channel for a while, and whether rules of
// both together might lead in a circle: then none stays, nor does one that is gone, or if viewers'
// gateways have no room for the channel twice. A branch that nobody watches any more stays without
// its viewers: what is under way on it meets no guard, whose decision Open vSwitch would keep for
// ten seconds, and whoever came back meanwhile would meet.
func (w *ways) beside(l *line, t tree.Tree, top *network.Topology, a *audience) (before tree.Tree, circle bool) {
	w.mu.Lock()
	was, former := l.applied, l.former
	unsure := []tree.Tree{l.planned, l.planBefore} // what has failed may be there in part
	w.mu.Unlock()
	moves := was.Moves(t)
	switch {
	case tree.Circle(append(unsure, former.tree, was, t)...):
		return tree.Tree{}, true
	case !moves && time.Now().Before(former.until):
		if t.Twice(former.tree) && (former.left || !w.roomForTwice(former.tree, t, a)) { // somebody is back, by another way
			return tree.Tree{}, false
		}
		return former.tree, false
	case moves && was.Root == t.Root && w.there(was, top) && (!t.Twice(was) || w.roomForTwice(was, t, a)):
		return was, false
	case !moves && was.Leaves(t) && w.there(was, top):
		return was, false
	}
	return tree.Tree{}, false
}

// there says whether packets go on by all links of a tree: that the controller does not know of
// one, because a switch is not connected or has just been, does not stop them.
func (w *ways) there(t tree.Tree, top *network.Topology) bool {
	return !slices.ContainsFunc(t.Edges, func(e tree.Edge) bool {
		return !e.In(top) && !e.Dark(top, w.unsure)
	})
}

// roomForTwice says whether there is room for what is sent twice while two ways of a channel are
// there together: on links that are of both, and at the ports of gateways that get it by another
// way than before. All their channels may move at once.
func (w *ways) roomForTwice(was, t tree.Tree, a *audience) bool {
	if !w.book.RoomForTwice(t.Shared(was)) {
		return false
	}
	in := was.Common(t).In()
	for d, gateways := range a.behind {
		if _, same := in[d]; same || len(a.copies[d]) == 0 {
			continue
		}
		for _, name := range gateways {
			if g := w.egress.Get(name); g != nil && !w.viewers.roomForTwice(bounds{port: roomAt(w.core, g, w.egress.List()), rate: w.rate}) {
				return false
			}
		}
	}
	return true
}

// roomForTwice says whether the port of a gateway has room for twice what it gets.
func (t *viewers) roomForTwice(b bounds) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.taken(&b)
	return b.port.lacks(taken, taken) == nil
}

// keepFormer has the way before another stay for as long as packets may be under way on it: if the
// channel was moved from it, or has left branches of it. The lock is held.
func (w *ways) keepFormer(channel string, l *line, before tree.Tree, moved, left bool) {
	if before.Equal(l.former.tree) && !l.former.left { // what it was moved from before has its time
		left = false
	}
	l.former.tree = before
	switch {
	case len(before.Edges) == 0:
		l.former.until, l.former.left = time.Time{}, false
		return
	case !moved && !left:
		return
	}
	l.former.until, l.former.left = time.Now().Add(underWay), !moved
	if !l.former.ending {
		l.former.ending = w.tasks.Start(func(ctx context.Context) { w.endFormer(ctx, channel, l) })
	}
}

// endFormer has the former way of a channel taken out of the switches when its time is over.
func (w *ways) endFormer(ctx context.Context, channel string, l *line) {
	for {
		w.mu.Lock()
		left := time.Until(l.former.until)
		l.former.ending = left > 0
		w.mu.Unlock()
		if left <= 0 {
			break
		}
		if tasks.Sleep(ctx, left) != nil {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	_ = w.Channels.Reconcile(ctx, channel) // the channel's trouble says why not
}
