package plugin

import (
	"context"
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/cinema/tree"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// readEvery is how often counters of buckets are read at most, readTimeout how long that
	// may take, readAtOnce how many switches are asked at once.
	readEvery   = 2 * time.Second
	readTimeout = time.Second
	readAtOnce  = 16
)

// groupAt is a group of a switch.
type groupAt struct {
	sw openflow.DatapathID
	id uint32
}

// reading is what the buckets of a group had counted.
type reading struct {
	buckets []openflow.Bucket
	counts  []uint64
}

// deliveries count the packets that switches have copied to each viewer, from what buckets
// count. A bucket begins anew when its group is changed: what it has counted between the last
// reading and that is not in the sum.
type deliveries struct {
	ways *ways

	mu   sync.Mutex // held while it is read
	at   time.Time
	last map[groupAt]reading
	sums map[string]uint64 // by viewer
}

func newDeliveries(w *ways) *deliveries {
	return &deliveries{ways: w, last: map[groupAt]reading{}, sums: map[string]uint64{}}
}

// of gives the sums, by viewer, no older than a reading takes. They are not to be changed.
func (t *deliveries) of(ctx context.Context) map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.at) < readEvery {
		return t.sums
	}
	before := t.ways.copying()
	counted := t.ways.counted(ctx, before)
	t.sums, t.last = t.ways.tally(t.last, t.sums, before, counted)
	t.at = time.Now()
	return t.sums
}

// tally adds to sums what groups have counted since they were last read. Those that have been
// changed meanwhile are left to the next reading.
func (w *ways) tally(last map[groupAt]reading, sums map[string]uint64, before map[groupAt][]openflow.Bucket, counted map[groupAt][]openflow.Counter) (map[string]uint64, map[groupAt]reading) {
	viewers, after := w.whoAt(), w.copying()
	next, out := map[groupAt]reading{}, map[string]uint64{}
	for _, all := range viewers {
		for _, id := range all {
			out[id] = sums[id]
		}
	}
	for g, list := range before {
		counters := counted[g]
		if len(counters) != len(list) || !sameList(after[g], list) {
			if was, read := last[g]; read {
				next[g] = was
			}
			continue
		}
		was := last[g]
		now := reading{list, make([]uint64, len(list))}
		for i := range list {
			n := counters[i].Packets
			if n == math.MaxUint64 { // the switch does not count
				n = 0
			}
			now.counts[i] = n
			if sameList(was.buckets, list) && n >= was.counts[i] {
				n -= was.counts[i]
			}
			for _, id := range viewers[tree.BucketTo(list[i])] {
				out[id] += n
			}
		}
		next[g] = now
	}
	return out, next
}

// sameList says whether two lists of buckets are one: a list is made anew when something changes.
func sameList(a, b []openflow.Bucket) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

// whoAt are the viewers, by where their packets go.
func (w *ways) whoAt() map[netip.AddrPort][]string {
	out := map[netip.AddrPort][]string{}
	for _, v := range w.viewers.list() {
		if g := w.egress.Get(v.gateway); g != nil {
			st := g.State()
			if addr, ok := st.Addr(w.Media); ok {
				at := netip.AddrPortFrom(addr, v.port)
				out[at] = append(out[at], v.id)
			}
		}
	}
	return out
}

// copying are the groups that are in the switches as they are planned.
func (w *ways) copying() map[groupAt][]openflow.Bucket {
	out := map[groupAt][]openflow.Bucket{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lines {
		for g, list := range l.lists {
			if sameList(l.planLists[g], list) {
				out[g] = list
			}
		}
	}
	return out
}

// counted asks the switches of groups what these have counted. One that does not answer is
// left out.
func (w *ways) counted(ctx context.Context, groups map[groupAt][]openflow.Bucket) map[groupAt][]openflow.Counter {
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
	tasks.Each(switches, readAtOnce, func(d openflow.DatapathID) {
		all, err := w.Rules.GroupStats(ctx, d)
		if err != nil {
			w.strange.Info(w.Log, "counters of buckets cannot be read", "switch", d, "error", err)
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
