package subflows

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/graph"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// pathsValidFor is how long paths that were found for a connection may be used.
const pathsValidFor = 10 * time.Second

// linkLoads holds the loads of links and computes how wide they are for a further subflow.
// Links are identified by the ports from which they leave.
type linkLoads struct {
	book       *reserve.Book
	settleTime time.Duration // how long measurements do not show what was placed

	mu       sync.Mutex
	placed   map[reserve.Link]int    // subflows on the link, in either direction
	carried  map[reserve.Link]uint64 // what they carried at the last reading, in bits per second
	silent   map[reserve.Link]int    // those of them that carried nothing at the last reading
	expected []expectedLoad
}

// expectedLoad is what a subflow was expected to carry when it was placed.
type expectedLoad struct {
	links []reserve.Link
	rate  uint64
	until time.Time
}

func newLoads(book *reserve.Book, unseen time.Duration) *linkLoads {
	return &linkLoads{book: book, settleTime: unseen, placed: map[reserve.Link]int{}}
}

// add adds a subflow to the links of a path; remove removes it.
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

// setMeasured sets what subflows carry on links, and how many of them carry nothing.
func (l *linkLoads) setMeasured(rates map[reserve.Link]uint64, silent map[reserve.Link]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.carried, l.silent = rates, silent
}

// start adds a subflow to a path together with its expected load.
func (l *linkLoads) start(f found, now time.Time) {
	l.add(f.hops)
	l.expect(f, now)
}

// expect records what a subflow is expected to carry on a path, until measurements show it.
func (l *linkLoads) expect(f found, now time.Time) {
	if len(f.hops) == 1 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expected = slices.DeleteFunc(l.expected, func(g expectedLoad) bool { return now.After(g.until) })
	l.expected = append(l.expected, expectedLoad{flowpath.LinkPorts(f.hops), f.width, now.Add(l.settleTime)})
}

// promisedOn returns the sum of what is promised on the links of a path.
func (l *linkLoads) promisedOn(hops []network.Hop) (sum uint64) {
	for _, at := range flowpath.LinkPorts(hops) {
		sum += l.book.Promised(at)
	}
	return sum
}

// widths holds how wide links are at one moment, while the paths of one connection are
// searched.
type widths struct {
	*linkLoads
	own   map[reserve.Link]uint64 // subflows of that connection on each link
	taken map[reserve.Link]uint64 // expected loads that are not measured yet
	more  map[reserve.Link]uint64 // subflows added by this search
	known map[reserve.Link]linkInfo
}

// linkInfo is what is known about one direction of a link: what is free; what is not
// promised; the part of that which other traffic does not use either; and the number of
// subflows on it, without silent ones, which a host can open at will.
type linkInfo struct{ free, unpromised, shared, subflows uint64 }

// widths returns the widths for a further subflow of a connection whose other subflows use
// the given paths.
func (l *linkLoads) widths(now time.Time, others [][]network.Hop) widths {
	w := widths{l, map[reserve.Link]uint64{}, map[reserve.Link]uint64{}, map[reserve.Link]uint64{}, map[reserve.Link]linkInfo{}}
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

// add adds one more subflow on a path.
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
	use := w.book.Use(at)
	free := w.book.EstimateFree(at) // what subflows carry is available for promises, but not for other subflows
	l := linkInfo{unpromised: use.Capacity - min(w.book.Promised(at), use.Capacity)}
	w.mu.Lock()
	l.free = free - min(w.carried[at], free)
	l.subflows = uint64(max(w.placed[at]-w.silent[at], 0))
	w.mu.Unlock()
	l.shared = min(free, l.unpromised)
	w.known[at] = l
	return l
}

// othersPart bounds how much of a full link a further subflow can take from traffic that is
// neither promised nor a subflow: one part in othersPart of what is not promised. Such
// traffic yields, but the number of its connections is not known.
const othersPart = 8

// gainAt returns how much more a connection would get by a further subflow in one direction
// of a link, in bits per second. It is the greatest of: what is free; the growth of the
// connection's share, beside the subflows on the link, of what is neither used by other
// traffic nor promised; and its part of what that other traffic uses, which is less for
// each subflow that it has there. If the connection has the link for itself, nothing grows,
// and a small part stands for that.
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

// width returns the smaller gain of both directions, because a SYN does not tell which one
// data takes.
func (w widths) width(l network.Link) uint64 { return min(w.gainAt(l.From), w.gainAt(l.To)) }

// detourFactor is how many times as wide a path has to be if it is longer than the
// shortest.
const detourFactor = 2

// widest returns up to k paths between two ports: each the widest of the shortest that
// those before it leave, or one that is at most two links longer and at least twice as
// wide.
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
