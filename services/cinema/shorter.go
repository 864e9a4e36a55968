package cinema

import (
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

const (
	// stableAfter is how long links must not have changed before channels move to shorter
	// paths, so that a flapping link moves nothing.
	stableAfter = 5 * time.Second
	// shortenInterval is how often a shorter tree is tried without a change of links, because
	// other channels may have released room.
	shortenInterval = 30 * time.Second
)

// linksChanged records that a link has come up or gone down.
func (tm *treeManager) linksChanged() {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	tm.linksChangedAt = time.Now()
}

// shortenDue reports whether it is time to try a shorter tree for a channel, and records the
// attempt.
func (tm *treeManager) shortenDue(cs *channelState) bool {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	now, since := time.Now(), tm.linksChangedAt.Add(stableAfter)
	if now.Before(since) || now.Before(cs.draining.until) || cs.shortenTriedAt.After(since) && now.Sub(cs.shortenTriedAt) < shortenInterval {
		return false
	}
	cs.shortenTriedAt = now
	return true
}

// shorten returns a tree with fewer links for a channel, if there is one to which it can move
// without packets arriving twice. Otherwise it returns t.
func (tm *treeManager) shorten(channel string, cs *channelState, t tree.Tree, want tree.Want, top *network.Topology) tree.Tree {
	if len(t.Edges) < 2 || !tm.shortenDue(cs) || !tm.intact(t, top) {
		return t
	}
	if next, ok := tm.reservations.Shorter(channel, top, want); ok {
		return next
	}
	return t
}
