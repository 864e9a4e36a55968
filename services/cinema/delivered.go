package cinema

import (
	"context"
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

const (
	// readInterval is the least time between two readings of the bucket counters, readTimeout
	// bounds one reading, and maxParallelReads how many switches are asked at the same time.
	readInterval     = 2 * time.Second
	readTimeout      = time.Second
	maxParallelReads = 16
)

// reading holds the counters of a group's buckets at one time.
type reading struct {
	buckets []openflow.Bucket
	counts  []uint64
}

// deliveryCounters counts the packets that switches have copied to each viewer, from the
// counters of buckets. When a group changes, the counters of its buckets start again at zero. The
// packets that a bucket counted between the last reading and the change are then missing from the
// sum.
type deliveryCounters struct {
	trees *treeManager

	mu     sync.Mutex // held during a reading
	readAt time.Time
	last   map[groupAt]reading
	sums   map[string]uint64 // by viewer
}

func newDeliveryCounters(tm *treeManager) *deliveryCounters {
	return &deliveryCounters{trees: tm, last: map[groupAt]reading{}, sums: map[string]uint64{}}
}

// sumsByViewer returns the sums, at most readInterval old. The caller must not change the map.
func (t *deliveryCounters) sumsByViewer(ctx context.Context) map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.readAt) < readInterval {
		return t.sums
	}
	before := t.trees.installedBuckets()
	counted := t.trees.readCounters(ctx, before)
	t.sums, t.last = t.trees.tally(t.last, t.sums, before, counted)
	t.readAt = time.Now()
	return t.sums
}

// tally returns the sums increased by the packets that groups have counted since their last reading,
// and the new last readings. before holds the buckets of the groups when counted was read. Groups
// that have changed since then are left to the next call.
func (tm *treeManager) tally(last map[groupAt]reading, sums map[string]uint64, before map[groupAt][]openflow.Bucket, counted map[groupAt][]openflow.Counter) (map[string]uint64, map[groupAt]reading) {
	viewers, after := tm.viewersByAddress(), tm.installedBuckets()
	next, out := map[groupAt]reading{}, map[string]uint64{}
	for _, all := range viewers {
		for _, id := range all {
			out[id] = sums[id]
		}
	}
	for g, list := range before {
		counters := counted[g]
		if len(counters) != len(list) || !sameList(after[g], list) {
			if prev, read := last[g]; read {
				next[g] = prev
			}
			continue
		}
		prev := last[g]
		now := reading{list, make([]uint64, len(list))}
		for i := range list {
			n := counters[i].Packets
			if n == math.MaxUint64 { // the switch has no such counter
				n = 0
			}
			now.counts[i] = n
			if sameList(prev.buckets, list) && n >= prev.counts[i] {
				n -= prev.counts[i]
			}
			for _, id := range viewers[tree.BucketTo(list[i])] {
				out[id] += n
			}
		}
		next[g] = now
	}
	return out, next
}

// sameList reports whether two lists of buckets are the same slice. A new slice is made
// whenever a list changes.
func sameList(a, b []openflow.Bucket) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

// viewersByAddress returns the viewers' identifiers by the destination of their packets.
func (tm *treeManager) viewersByAddress() map[netip.AddrPort][]string {
	out := map[netip.AddrPort][]string{}
	for _, v := range tm.viewers.list() {
		if g := tm.egress.Get(v.gateway); g != nil {
			st := g.State()
			if addr, ok := st.Addr(tm.Media); ok {
				at := netip.AddrPortFrom(addr, v.port)
				out[at] = append(out[at], v.id)
			}
		}
	}
	return out
}

// installedBuckets returns the buckets of the groups that the switches have as planned. It omits
// groups of which a change is in progress.
func (tm *treeManager) installedBuckets() map[groupAt][]openflow.Bucket {
	out := map[groupAt][]openflow.Bucket{}
	tm.mu.Lock()
	defer tm.mu.Unlock()
	for _, cs := range tm.states {
		for g, list := range cs.lists {
			if sameList(cs.planLists[g], list) {
				out[g] = list
			}
		}
	}
	return out
}

// readCounters reads the counters of the groups. It leaves out switches that do not answer.
func (tm *treeManager) readCounters(ctx context.Context, groups map[groupAt][]openflow.Bucket) map[groupAt][]openflow.Counter {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var switches []openflow.DatapathID
	seen := map[openflow.DatapathID]bool{}
	for g := range groups {
		if !seen[g.sw] {
			seen[g.sw] = true
			switches = append(switches, g.sw)
		}
	}
	var mu sync.Mutex
	out := map[groupAt][]openflow.Counter{}
	tasks.Each(switches, maxParallelReads, func(d openflow.DatapathID) {
		all, err := tm.Rules.GroupStats(ctx, d)
		if err != nil {
			tm.warnLimiter.Info(tm.Log, "cannot read counters of buckets", "switch", d, "error", err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range all {
			out[groupAt{d, all[i].Group}] = all[i].Buckets
		}
	})
	return out
}
