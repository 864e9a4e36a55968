package critical

import (
	"slices"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/match"
)

// table holds the flows. If both locks are needed, the table's is taken before a flow's.
type table struct {
	mu       sync.Mutex
	byHeader map[match.Header]*flow
	byID     map[string]*flow
	ends     flowpath.HostCounts
	placing  int // number of flows that are being placed
	numbers  numbers
}

func newTable() *table {
	return &table{byHeader: map[match.Header]*flow{}, byID: map[string]*flow{}, ends: flowpath.HostCounts{}}
}

// between reports whether the host with the given MAC address has flows.
func (t *table) between(mac openflow.MAC) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ends.Has(mac)
}

// lookup returns the flow of a packet, in either direction; nil if there is none. The lock
// is held.
func (t *table) lookup(h match.Header) *flow {
	if f := t.byHeader[h]; f != nil {
		return f
	}
	return t.byHeader[h.Reverse()]
}

// find locks the table and calls lookup.
func (t *table) find(h match.Header) *flow {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lookup(h)
}

// add adds a flow, and gives it its former number if that is free, otherwise another free one. The
// lock is held.
func (t *table) add(f *flow) {
	f.Number = t.numbers.take(f.Number)
	t.byHeader[f.Header], t.byID[f.id] = f, f
	t.ends.Add(f.Header)
}

// remove removes a flow that is over.
func (t *table) remove(f *flow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeLocked(f)
}

// removeLocked implements remove. The lock is held.
func (t *table) removeLocked(f *flow) {
	f.cancel()
	t.numbers.free(f.Number)
	if t.byID[f.id] == f {
		t.ends.Remove(f.Header)
	}
	delete(t.byHeader, f.Header)
	delete(t.byID, f.id)
}

// donePlacing records that a flow is not being placed any more.
func (t *table) donePlacing() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.placing--
}

// all returns the flows for which which returns true, the oldest first.
func (t *table) all(which func(*flow) bool) []*flow {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*flow, 0, len(t.byID))
	for _, f := range t.byID {
		if which(f) {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b *flow) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	})
	return out
}

// placed returns the flows that have been placed.
func (t *table) placed() []*flow {
	return t.all(func(f *flow) bool { return f.status().State != StatePlacing })
}

// numbers records which numbers of flows are in use. The first number is 1.
type numbers [maxFlows + 1]bool

// take reserves and returns a number: n if it is free, otherwise the lowest free one.
func (s *numbers) take(n int) int {
	if n < 1 || n > maxFlows || s[n] {
		n = 1 + slices.Index(s[1:], false)
	}
	s[n] = true
	return n
}

func (s *numbers) free(n int) { s[n] = false }
