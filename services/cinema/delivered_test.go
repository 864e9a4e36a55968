package cinema

import (
	"errors"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// TestDelivered checks that a viewer's count is what its bucket has counted, across changes of
// the group, which reset the counters. Switches are asked seldom, and one that does not answer,
// or answers something else, changes nothing.
func TestDelivered(t *testing.T) {
	b := newBench(t)
	asked := 0
	counts := func(all ...uint64) {
		stats := func() ([]openflow.GroupStats, error) {
			asked++
			g := openflow.GroupStats{Group: b.ledger.GroupID(tree.GroupNumber(1, 0))} // the first group of channel 1
			for _, n := range all {
				g.Buckets = append(g.Buckets, openflow.Counter{Packets: n})
			}
			return []openflow.GroupStats{{Group: 1, Buckets: make([]openflow.Counter, 99)}, g}, nil
		}
		b.ledger.stats.Store(&stats)
	}
	expect := func(when string, want map[string]uint64) {
		t.Helper()
		b.service.delivered.mu.Lock()
		b.service.delivered.readAt = time.Time{}
		b.service.delivered.mu.Unlock()
		for range 3 {
			got := map[string]uint64{}
			for _, v := range b.service.viewerInfos(t.Context(), b.service.viewers.list()) {
				got[v.ID] = v.Delivered
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
	}
	b.mustWant(b.east, 1, 6001, "a")
	b.mustWant(b.east, 2, 6002, "a")
	counts(10, 20)
	expect("at first", map[string]uint64{id(1): 10, id(2): 20})
	counts(15, 30)
	expect("later", map[string]uint64{id(1): 15, id(2): 30})
	b.mustWant(b.east, 3, 6003, "a")
	counts(16, 1, 2)
	expect("in a group that has changed", map[string]uint64{id(1): 31, id(2): 31, id(3): 2})
	counts(17, 0, 2)
	expect("after a counter began anew by itself", map[string]uint64{id(1): 32, id(2): 31, id(3): 2})
	counts(18, 1)
	expect("when buckets are missing", map[string]uint64{id(1): 32, id(2): 31, id(3): 2})
	counts(math.MaxUint64, 5, 3)
	expect("when one is not counted", map[string]uint64{id(1): 32, id(2): 36, id(3): 3})
	silent := func() ([]openflow.GroupStats, error) { return nil, errors.New("no answer") }
	b.ledger.stats.Store(&silent)
	expect("when there is no answer", map[string]uint64{id(1): 32, id(2): 36, id(3): 3})
	b.mustWant(b.east, 1, 6001)
	expect("when one has gone", map[string]uint64{id(2): 36, id(3): 3})
	if asked != 6 {
		t.Errorf("switches were asked %d times", asked)
	}
}
