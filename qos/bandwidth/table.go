package bandwidth

import (
	"slices"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/match"
	"github.com/sluice-net/sluice/qos/way"
)

// table has the flows. Its lock is taken before that of a flow.
type table struct {
	mu       sync.Mutex
	byHeader map[match.Header]*flow
	byID     map[string]*flow
	ends     way.Ends
	placing  int // how many are being placed
	numbers  numbers
}

func newTable() *table {
	return &table{byHeader: map[match.Header]*flow{}, byID: map[string]*flow{}, ends: way.Ends{}}
}

// between says whether a host has flows.
func (t *table) between(mac openflow.MAC) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ends.Has(mac)
}

// of is the flow of a packet, in either direction, nil if there is none. The lock is held.
func (t *table) of(h match.Header) *flow {
	if f := t.byHeader[h]; f != nil {
		return f
	}
	return t.byHeader[h.Reverse()]
}

// find is of, without the lock.
func (t *table) find(h match.Header) *flow {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of(h)
}

// add enters a flow, and gives it the number that it had, or one that is free. The lock is
// held.
func (t *table) add(f *flow) {
	f.Number = t.numbers.take(f.Number)
	t.byHeader[f.Header], t.byID[f.id] = f, f
	t.ends.Add(f.Header)
}

// remove takes a flow out, which is over.
func (t *table) remove(f *flow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(f)
}

// drop is remove. The lock is held.
func (t *table) drop(f *flow) {
	f.cancel()
	t.numbers.free(f.Number)
	if t.byID[f.id] == f {
		t.ends.Remove(f.Header)
	}
	delete(t.byHeader, f.Header)
	delete(t.byID, f.id)
}

// donePlacing notes that a flow is not being placed any more.
func (t *table) donePlacing() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.placing--
}

// all lists the flows of which which is true, those first that came first.
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

// placed lists those that have a place.
func (t *table) placed() []*flow {
	return t.all(func(f *flow) bool { return f.now().State != StatePlacing })
}

// numbers are those of flows, from 1 on.
type numbers [maxFlows + 1]bool

// take takes a number: the one that is wanted, if it is free, or the lowest that is.
func (s *numbers) take(n int) int {
	if n < 1 || n > maxFlows || s[n] {
		n = 1 + slices.Index(s[1:], false)
	}
	s[n] = true
	return n
}

func (s *numbers) free(n int) { s[n] = false }
