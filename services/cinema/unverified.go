package cinema

import (
	"maps"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// linkDiscoveryTime is how long it takes until the links of a reconnected switch are known.
// Mostly they were up all the time, with the channels on them.
const linkDiscoveryTime = 3 * time.Second

// linksChanged records that a link has come up or gone down.
func (tm *treeManager) linksChanged() {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	tm.linksChangedAt = time.Now()
}

// switchChanged records that a switch has connected or disconnected.
func (tm *treeManager) switchChanged(d openflow.DatapathID, up bool) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(tm.linksKnownAt, func(_ openflow.DatapathID, at time.Time) bool { return !at.IsZero() && at.Before(now) })
	if !up {
		tm.linksKnownAt[d] = time.Time{}
	} else if _, ok := tm.linksKnownAt[d]; ok {
		tm.linksKnownAt[d] = now.Add(linkDiscoveryTime)
	}
}

// unverified reports whether a link may be up although the topology does not have it: one of
// its switches is disconnected or has just reconnected, and neither of its ports is known to be
// down.
func (tm *treeManager) unverified(e tree.Edge) bool {
	tm.mu.Lock()
	now, unknown := time.Now(), false
	for _, at := range []network.PortRef{e.From, e.To} {
		if sure, ok := tm.linksKnownAt[at.Switch]; ok && (sure.IsZero() || now.Before(sure)) {
			unknown = true
		}
	}
	tm.mu.Unlock()
	if !unknown {
		return false
	}
	for _, at := range []network.PortRef{e.From, e.To} {
		if up, known := tm.Network.PortUp(at); known && !up {
			return false
		}
	}
	return true
}
