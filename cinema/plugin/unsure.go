package plugin

import (
	"maps"
	"time"

	"github.com/sluice-net/sluice/cinema/tree"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// linksKnown is how long it takes until the links of a switch are known that has been connected
// again. They were there all the time, mostly, and so were the channels on them.
const linksKnown = 3 * time.Second

// connected notes that a switch is connected, or no longer.
func (w *ways) connected(d openflow.DatapathID, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(w.sure, func(_ openflow.DatapathID, at time.Time) bool { return !at.IsZero() && at.Before(now) })
	if !is {
		w.sure[d] = time.Time{}
	} else if _, was := w.sure[d]; was {
		w.sure[d] = now.Add(linksKnown)
	}
}

// unsure says whether a link may be there of which the topology does not know: one of a switch
// that was away just now, with both its ports up.
func (w *ways) unsure(e tree.Edge) bool {
	w.mu.Lock()
	now, unknown := time.Now(), false
	for _, at := range []network.PortRef{e.From, e.To} {
		if sure, was := w.sure[at.Switch]; was && (sure.IsZero() || now.Before(sure)) {
			unknown = true
		}
	}
	w.mu.Unlock()
	if !unknown {
		return false
	}
	for _, at := range []network.PortRef{e.From, e.To} {
		if up, known := w.Network.PortUp(at); known && !up {
			return false
		}
	}
	return true
}
