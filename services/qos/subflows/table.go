package subflows

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/match"
)

// table holds the subflows, and the paths of their connections. If both locks are needed, the
// table's is taken before a subflow's.
type table struct {
	maxPerPort int // bounds the subflows from one port

	mu          sync.Mutex
	byHeader    map[match.Header]*subflow
	byID        map[string]*subflow
	connections map[connection]*connPaths
	ends        flowpath.HostCounts
	from        map[network.PortRef]int
	placing     map[network.PortRef]int
	placingAll  int
}

// connPaths holds the subflows of a connection, and the paths that one search found for it and that
// are not used yet. It is kept as long as the connection has subflows.
type connPaths struct {
	subflows []*subflow
	from, to network.PortRef
	left     []found
	searched [][]network.Hop // all paths that this search found
	at       time.Time       // when the paths were found
}

// found is a path, with its width and the sum of the bandwidth that was promised on its links when
// it was found, in bits per second.
type found struct {
	hops            []network.Hop
	width, promised uint64
}

func pathsOf(all []found) (paths [][]network.Hop) {
	for _, p := range all {
		paths = append(paths, p.hops)
	}
	return paths
}

func newTable(most int) *table {
	return &table{
		maxPerPort: most, byHeader: map[match.Header]*subflow{}, byID: map[string]*subflow{},
		connections: map[connection]*connPaths{}, ends: flowpath.HostCounts{}, from: map[network.PortRef]int{}, placing: map[network.PortRef]int{},
	}
}

// find returns the subflow of a packet, in either direction; nil if there is none.
func (t *table) find(h match.Header) *subflow {
	t.mu.Lock()
	defer t.mu.Unlock()
	return cmp.Or(t.byHeader[h], t.byHeader[h.Reverse()])
}

// named returns the subflow with the given identifier; nil if there is none.
func (t *table) named(id string) *subflow {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// between reports whether the host with the given MAC address has subflows.
func (t *table) between(mac openflow.MAC) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ends.Has(mac)
}

// refusal returns the outcome that explains why another subflow from a port is refused, or "". The
// lock is held.
func (t *table) refusal(from network.PortRef) string {
	switch {
	case len(t.byID) >= maxSubflows:
		return outcomeFull
	case t.from[from] >= t.maxPerPort:
		return outcomeMost
	case t.placingAll >= maxPlacing, t.placing[from] >= maxPlacingEach:
		return outcomeBusy
	}
	return ""
}

// add adds a subflow. The lock is held.
func (t *table) add(f *subflow) {
	t.byHeader[f.Header], t.byID[f.id] = f, f
	t.ends.Add(f.Header)
	t.from[f.From]++
	if f.Plain {
		return
	}
	c := t.connections[f.Connection]
	if c == nil {
		c = &connPaths{}
		t.connections[f.Connection] = c
	}
	c.subflows = append(c.subflows, f)
}

// remove removes a subflow. With the last subflow of a connection, it also removes the connection's
// paths.
func (t *table) remove(f *subflow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byHeader, f.Header)
	delete(t.byID, f.id)
	t.ends.Remove(f.Header)
	if t.from[f.From]--; t.from[f.From] <= 0 {
		delete(t.from, f.From)
	}
	if c := t.connections[f.Connection]; c != nil && !f.Plain {
		c.subflows = slices.DeleteFunc(c.subflows, func(s *subflow) bool { return s == f })
		if len(c.subflows) == 0 {
			delete(t.connections, f.Connection)
		}
	}
}

// addPlacing adds a subflow that is being placed. The lock is held.
func (t *table) addPlacing(f *subflow) {
	t.add(f)
	t.placing[f.From]++
	t.placingAll++
}

// donePlacing records that a subflow is not being placed any more.
func (t *table) donePlacing(f *subflow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.placingAll--
	if t.placing[f.From]--; t.placing[f.From] <= 0 {
		delete(t.placing, f.From)
	}
}

// forget removes the subflows that could not be placed and whose SYN arrived before the given time.
func (t *table) forget(before time.Time) {
	for _, f := range t.all() {
		f.mu.Lock()
		over := f.failed && f.Since.Before(before)
		f.mu.Unlock()
		if over {
			t.remove(f)
		}
	}
}

// take removes and returns the next unused path of a subflow's connection between the subflow's
// ports. It reports whether there is one that was found recently enough.
func (t *table) take(f *subflow, now time.Time) (found, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.connections[f.Connection]
	if c == nil || len(c.left) == 0 || c.from != f.From || c.to != f.To || now.Sub(c.at) > pathsValidFor {
		return found{}, false
	}
	next := c.left[0]
	c.left = c.left[1:]
	return next, true
}

// others returns the paths of the other subflows of a connection between the same two ports,
// without silent ones. Subflows between other ports do not count, because a token is no secret, and
// another host may use it.
func (t *table) others(f *subflow) (all [][]network.Hop) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.connections[f.Connection]; c != nil && !f.Plain {
		for _, s := range c.subflows {
			if s != f && s.From == f.From && s.To == f.To {
				all = append(all, s.countedPath())
			}
		}
	}
	return all
}

// keep stores the paths that a search for a subflow has found. The subflow takes the first, and the
// next subflows of its connection the others.
func (t *table) keep(f *subflow, all []found, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.connections[f.Connection]; c != nil && !f.Plain {
		c.from, c.to, c.left, c.at, c.searched = f.From, f.To, all[1:], now, pathsOf(all)
	}
}

// searched returns all paths that the last search for a subflow's connection has found.
func (t *table) searched(f *subflow) [][]network.Hop {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.connections[f.Connection]; c != nil && !f.Plain {
		return slices.Clone(c.searched)
	}
	return nil
}

// all returns the subflows, the oldest first.
func (t *table) all() []*subflow {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*subflow, 0, len(t.byID))
	for _, f := range t.byID {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *subflow) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.id, b.id)) })
	return out
}
