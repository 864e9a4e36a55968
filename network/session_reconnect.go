package network

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// reconnects holds back switches that come and go: each coming costs every other switch
// something, since the network is another with it. A session that lasts costs nothing,
// however many come at once; one that does not lets the next one wait, of that switch
// and, where a machine makes up switches, of its address. Switches that the configuration
// tells of do not wait for others of their address, and no switch for one elsewhere that
// calls itself the same.
type reconnects struct {
	mu        sync.Mutex
	switches  map[comer]debt
	addresses map[netip.Addr]debt
}

// comer is a switch and where it comes from.
type comer struct {
	dpid openflow.DatapathID
	addr netip.Addr
}

const (
	// lasting is a session that has cost nobody anything.
	lasting = 10 * time.Second
	// A switch may have so many short sessions at once and one more each interval; an
	// address has more, for all its switches.
	briefOfSwitch, againOfSwitch   = 5, time.Second
	briefOfAddress, againOfAddress = 64, 125 * time.Millisecond
	// longestHold is how long a connection is held; one that would have to wait for
	// longer is closed.
	longestHold = 5 * time.Second
	// longestOwed bounds what may be owed: what came and went for another reason, as all
	// switches behind a link that failed again and again, is let in again by then.
	longestOwed = time.Minute
	// maxReconnects bounds what is remembered, of switches and of addresses.
	maxReconnects = 4096
)

// wait is how long a switch has to wait before its session begins.
func (r *reconnects) wait(d openflow.DatapathID, a netip.Addr, named bool, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := r.switches[comer{d, a}].beyond((briefOfSwitch-1)*againOfSwitch, now)
	if !named {
		wait = max(wait, r.addresses[a].beyond((briefOfAddress-1)*againOfAddress, now))
	}
	return wait
}

// ended notes that a session has.
func (r *reconnects) ended(d openflow.DatapathID, a netip.Addr, lasted time.Duration, now time.Time) {
	if lasted >= lasting {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.switches = owe(r.switches, comer{d, a}, againOfSwitch, now)
	r.addresses = owe(r.addresses, a, againOfAddress, now)
}

// owe adds to what somebody owes, if there is room to remember it.
func owe[K comparable](m map[K]debt, who K, t time.Duration, now time.Time) map[K]debt {
	if m == nil {
		m = map[K]debt{}
	}
	if _, known := m[who]; !known && len(m) >= maxReconnects {
		maps.DeleteFunc(m, func(_ K, d debt) bool { return d.beyond(0, now) == 0 })
		if len(m) >= maxReconnects {
			return m
		}
	}
	d := m[who]
	if d.beyond(longestOwed-t, now) == 0 {
		d.add(t, now)
	}
	m[who] = d
	return m
}
