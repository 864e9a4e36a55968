package subflows

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/graph"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// linkLoads holds the loads of links and computes the width of each link for a further subflow: the
// bandwidth that the subflow would add to its connection there. Links are identified by the ports
// from which they leave.
type linkLoads struct {
	book       *reserve.Book
	settleTime time.Duration // how long measurements do not include a subflow that was just placed

	mu       sync.Mutex
	placed   map[reserve.Link]int    // number of subflows on the link, in either direction
	carried  map[reserve.Link]uint64 // traffic of these subflows at the last reading, in bits per second
	silent   map[reserve.Link]int    // number of these subflows without traffic at the last reading
	expected map[string]expectedLoad // by the identifiers of the subflows

	recent recentLoads
}

// expectedLoad is the load that a subflow was expected to cause when it was placed.
type expectedLoad struct {
	links []reserve.Link
	rate  uint64
	until time.Time
}

func newLoads(book *reserve.Book, unseen time.Duration) *linkLoads {
	return &linkLoads{book: book, settleTime: unseen, placed: map[reserve.Link]int{}, expected: map[string]expectedLoad{}}
}

// add counts a subflow on the links of a path. remove undoes that.
func (l *linkLoads) add(hops []network.Hop)    { l.count(hops, 1) }
func (l *linkLoads) remove(hops []network.Hop) { l.count(hops, -1) }

func (l *linkLoads) count(hops []network.Hop, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range flowpath.LinkPorts(hops) {
		if l.placed[at] += n; l.placed[at] <= 0 {
			delete(l.placed, at)
		}
	}
}

// setMeasured sets the measured rates of subflows on links, in bits per second, and the number of
// silent subflows on each.
func (l *linkLoads) setMeasured(rates map[reserve.Link]uint64, silent map[reserve.Link]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.carried, l.silent = rates, silent
}

// start counts a subflow on the links of a path, together with its expected load.
func (l *linkLoads) start(id string, f found, now time.Time) {
	l.add(f.hops)
	l.expect(id, f, now)
}

// expect records the load that a subflow is expected to cause on a path, until measurements include
// it. It replaces the load that the subflow was expected to cause on another path.
func (l *linkLoads) expect(id string, f found, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.expected, func(_ string, g expectedLoad) bool { return now.After(g.until) })
	if len(f.hops) > 1 {
		l.expected[id] = expectedLoad{flowpath.LinkPorts(f.hops), f.width, now.Add(l.settleTime)}
	}
}

// expectNothing forgets the load that a subflow was expected to cause: it has ended, or was not
// placed there, or is silent.
func (l *linkLoads) expectNothing(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.expected, id)
}

// use returns the capacity of a link and the traffic on it, according to the latest readings. It
// reports whether these are recent.
func (l *linkLoads) use(at reserve.Link, now time.Time) (u reserve.Use, recent bool) {
	u = l.book.Use(at)
	rate, recent := l.recent.rate(at, now)
	if recent {
		u.Used, u.Unknown = rate, false
	}
	return u, recent
}

// promisedOn returns the sum of the bandwidth that is promised on the links of a path, in bits per
// second.
func (l *linkLoads) promisedOn(hops []network.Hop) (sum uint64) {
	for _, at := range flowpath.LinkPorts(hops) {
		sum += l.book.Promised(at)
	}
	return sum
}

// widths computes the widths of links at one moment, while the paths of one connection are
// searched.
type widths struct {
	*linkLoads
	now   time.Time
	own   map[reserve.Link]uint64 // number of other subflows of that connection on each link
	taken map[reserve.Link]uint64 // expected loads that measurements do not include yet
	more  map[reserve.Link]uint64 // number of subflows added by this search
	known map[reserve.Link]linkInfo
}

// linkInfo holds what is known about one direction of a link, in bits per second. free is the
// unused capacity. unpromised is the capacity that is not promised. shared is the part of
// unpromised that no other traffic than subflows uses. subflows is the number of subflows on the
// link, without silent ones, which a host can open at will.
type linkInfo struct{ free, unpromised, shared, subflows uint64 }

// widths returns the widths for a further subflow of a connection whose other subflows use
// the given paths.
func (l *linkLoads) widths(now time.Time, others [][]network.Hop) widths {
	w := widths{l, now, map[reserve.Link]uint64{}, map[reserve.Link]uint64{}, map[reserve.Link]uint64{}, map[reserve.Link]linkInfo{}}
	for _, hops := range others {
		for _, at := range flowpath.LinkPorts(hops) {
			w.own[at]++
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.expected {
		if now.Before(g.until) {
			w.take(g.links, g.rate)
		}
	}
	return w
}

func (w widths) take(links []reserve.Link, rate uint64) {
	for _, at := range links {
		w.taken[at] += rate
	}
}

// add counts one more subflow on a path during this search.
func (w widths) add(f found) {
	links := flowpath.LinkPorts(f.hops)
	w.take(links, f.width)
	for _, at := range links {
		w.more[at]++
	}
}

// infoOf returns what is known about one direction of a link.
func (w widths) infoOf(at reserve.Link) linkInfo {
	if l, known := w.known[at]; known {
		return l
	}
	use, recent := w.use(at, w.now)
	free := w.book.EstimateFreeOf(at, use) // bandwidth that subflows use is available for promises, but not for other subflows
	l := linkInfo{unpromised: use.Capacity - min(w.book.Promised(at), use.Capacity)}
	w.mu.Lock()
	carried := w.carried[at]
	if recent {
		carried = min(carried, use.Used) // some of it may have ended since
	}
	l.free = free - min(carried, free)
	l.subflows = uint64(max(w.placed[at]-w.silent[at], 0))
	w.mu.Unlock()
	l.shared = min(free, l.unpromised)
	w.known[at] = l
	return l
}

// othersPart bounds how much of a full link a further subflow can take from traffic that is neither
// promised nor a subflow: the capacity that is not promised, divided by othersPart. Such traffic
// yields to a new subflow, but the number of its connections is not known.
const othersPart = 8

// gainAt returns how much more a connection would get by a further subflow in one direction of a
// link, in bits per second. It is the greatest of three values. The first is the free capacity. The
// second is the growth of the connection's share, beside the other subflows on the link, of the
// capacity that is neither promised nor used by other traffic. The third is the part that the
// subflow takes from this other traffic; it is less for each subflow that the connection has there
// already. If the connection is alone on the link, its share does not grow, and a small part stands
// for that.
func (w widths) gainAt(at reserve.Link) uint64 {
	l := w.infoOf(at)
	n := l.subflows + w.more[at]
	own := min(w.own[at]+w.more[at], n)
	grows := l.shared
	if n > 0 {
		grows = l.shared / n * (n - own) / (n + 1)
	}
	part := max(min(l.unpromised-l.shared, l.unpromised/othersPart), l.unpromised/(othersPart*othersPart))
	return max(l.free-min(l.free, w.taken[at]), grows, part/((n+1)*(own+1)))
}

// width returns the smaller gain of the two directions, because a SYN does not tell in which
// direction data will flow.
func (w widths) width(l network.Link) uint64 { return min(w.gainAt(l.From), w.gainAt(l.To)) }

// detourFactor is how many times as wide as the shortest path a longer path has to be.
const detourFactor = 2

// widest returns up to k paths between two ports. Each is the widest of the shortest paths in the
// capacity that the paths before it leave, or one that is at most two links longer and at least
// twice as wide.
func (w widths) widest(t *network.Topology, from, to network.PortRef, k int) ([]found, error) {
	var all []found
	for range k {
		p, width, ok := t.Widest(from, to, 0, w.width)
		longer, more, better := t.Widest(from, to, graph.MostLonger, func(l network.Link) uint64 {
			if x := w.width(l); x >= detourFactor*width {
				return x
			}
			return 0
		})
		switch {
		case better && width < math.MaxUint64:
			p, width = longer, more
		case !ok:
			return nil, fmt.Errorf("%w from %v to %v with capacity that is not promised", network.ErrNoPath, from, to)
		}
		next := found{p.Hops, width, w.promisedOn(p.Hops)}
		w.add(next)
		all = append(all, next)
		if len(next.hops) == 1 {
			break
		}
	}
	return all, nil
}
