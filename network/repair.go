package network

import (
	"maps"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// repairs are requests to bring default forwarding in line with a network that
// has changed. They are done one at a time; requests that come meanwhile are
// done together.
type repairs struct {
	mu   sync.Mutex
	dead map[PortRef]struct{} // ports that lead nowhere any more
	left map[openflow.DatapathID]time.Time
	most int           // entries of left at which old ones are taken out
	wake chan struct{} // flows
	base chan struct{} // the broadcast tree
}

// switchLeft notes that a switch has gone just now. What is older than the grace
// of awaited counts no more.
func (r *repairs) switchLeft(d openflow.DatapathID, grace time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == nil {
		r.left = map[openflow.DatapathID]time.Time{}
	}
	if len(r.left) >= r.most {
		maps.DeleteFunc(r.left, func(_ openflow.DatapathID, at time.Time) bool { return time.Since(at) >= grace })
		r.most = 2*len(r.left) + 64
	}
	r.left[d] = time.Now()
}

// awaited reports whether a switch has left so recently that it may only have
// lost its connection for a moment.
func (r *repairs) awaited(d openflow.DatapathID, grace time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.left[d]
	if ok && time.Since(at) >= grace {
		delete(r.left, d)
		ok = false
	}
	return ok
}

// request asks for a repair; at, if not zero, is a port that has died.
func (r *repairs) request(at PortRef) {
	if !at.IsZero() {
		r.mu.Lock()
		if r.dead == nil {
			r.dead = map[PortRef]struct{}{}
		}
		r.dead[at] = struct{}{}
		r.mu.Unlock()
	}
	for _, c := range []chan struct{}{r.wake, r.base} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (r *repairs) take() map[PortRef]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	dead := r.dead
	r.dead = nil
	return dead
}

const (
	// repairShare is how many times as long as it took nothing is repaired again: a repair
	// looks at every flow, and holds up those that decide about new ones. What comes
	// meanwhile is done together.
	repairShare = 4
	// longRepair is the longest that counts: beyond it was waited for a switch, or the
	// machine stood still.
	longRepair = 50 * time.Millisecond
)

// repairPause is for how long nothing is repaired after a repair that took a time, so that
// a port that comes and goes without end costs others a fifth of one processor at most.
func repairPause(took time.Duration) time.Duration { return repairShare * min(took, longRepair) }
