package subflow

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/graph"
	"github.com/sluice-net/sluice/qos/reserve"
	"github.com/sluice-net/sluice/qos/way"
)

// freshFor is how long paths that were found for a connection may be taken.
const freshFor = 10 * time.Second

// loads say how wide links are for a further subflow. Links are told by the ports that they
// leave from.
type loads struct {
	book   *reserve.Book
	unseen time.Duration // for so long measurements do not show what was given

	mu      sync.Mutex
	placed  map[reserve.Link]int    // subflows that go there, in either direction
	carried map[reserve.Link]uint64 // what they carried at the last reading, in bits per second
	silent  map[reserve.Link]int    // those of them that carried nothing at the last reading
	given   []given
}

// given is what a subflow was expected to carry when it was placed.
type given struct {
	links []reserve.Link
	rate  uint64
	until time.Time
}

func newLoads(book *reserve.Book, unseen time.Duration) *loads {
	return &loads{book: book, unseen: unseen, placed: map[reserve.Link]int{}}
}

// enter notes a subflow on a path; leave takes it away.
func (l *loads) enter(hops []network.Hop) { l.count(hops, 1) }
func (l *loads) leave(hops []network.Hop) { l.count(hops, -1) }

func (l *loads) count(hops []network.Hop, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range way.Ports(hops) {
		if l.placed[at] += n; l.placed[at] <= 0 {
			delete(l.placed, at)
		}
	}
}

// carry notes what subflows carry on links, and how many of them carry nothing.
func (l *loads) carry(rates map[reserve.Link]uint64, silent map[reserve.Link]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.carried, l.silent = rates, silent
}

// begin notes a subflow on a path, and what it is expected to carry there.
func (l *loads) begin(f found, now time.Time) {
	l.enter(f.hops)
	l.give(f, now)
}

// give notes what a subflow is expected to carry on a path, until it is measured.
func (l *loads) give(f found, now time.Time) {
	if len(f.hops) == 1 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.given = slices.DeleteFunc(l.given, func(g given) bool { return now.After(g.until) })
	l.given = append(l.given, given{way.Ports(f.hops), f.width, now.Add(l.unseen)})
}

// promised is what is promised on the links of a path together.
func (l *loads) promised(hops []network.Hop) (sum uint64) {
	for _, at := range way.Ports(hops) {
		sum += l.book.Promised(at)
	}
	return sum
}

// widths are how wide links are at one moment, while the paths of one connection are found.
type widths struct {
	*loads
	own   map[reserve.Link]uint64 // subflows of that connection which have been placed there
	taken map[reserve.Link]uint64 // what is given there and not measured
	more  map[reserve.Link]uint64 // subflows that come on top of those placed
	known map[reserve.Link]link
}

// link is what is known of one direction of a link: what is free there; what is not promised;
// what of that others do not use either; and how many subflows have been placed there, but those
// that are silent: a host opens such ones at will.
type link struct{ free, unpromised, shared, subflows uint64 }

// widths are those for a further subflow of a connection, of which others go along such paths.
func (l *loads) widths(now time.Time, others [][]network.Hop) widths {
	w := widths{l, map[reserve.Link]uint64{}, map[reserve.Link]uint64{}, map[reserve.Link]uint64{}, map[reserve.Link]link{}}
	for _, hops := range others {
		for _, at := range way.Ports(hops) {
			w.own[at]++
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.given {
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

// put notes one more subflow on a path.
func (w widths) put(f found) {
	links := way.Ports(f.hops)
	w.take(links, f.width)
	for _, at := range links {
		w.more[at]++
	}
}

// look finds out about one direction of a link.
func (w widths) look(at reserve.Link) link {
	if l, known := w.known[at]; known {
		return l
	}
	use := w.book.Use(at)
	free := w.book.Room(at) // what subflows carry is free for promises, not for others
	l := link{unpromised: use.Capacity - min(w.book.Promised(at), use.Capacity)}
	w.mu.Lock()
	l.free = free - min(w.carried[at], free)
	l.subflows = uint64(max(w.placed[at]-w.silent[at], 0))
	w.mu.Unlock()
	l.shared = min(free, l.unpromised)
	w.known[at] = l
	return l
}

// others is what traffic that is neither promised nor a subflow leaves a further subflow on a full link at most, as a part of what is
// not promised: it makes room, and of how many connections it is is not known.
const others = 8

// of is what a connection would get more by a further subflow in one direction of a link, in bits
// per second: what is free; or what its share grows by, beside the subflows that are there, of what
// neither others use nor is promised; or its part of what those others use, less for each subflow that it has there;
// whichever is most. Where it has the link for itself nothing grows, and a small part stands for that.
func (w widths) of(at reserve.Link) uint64 {
	l := w.look(at)
	n := l.subflows + w.more[at]
	own := min(w.own[at]+w.more[at], n)
	grows := l.shared
	if n > 0 {
		grows = l.shared / n * (n - own) / (n + 1)
	}
	part := max(min(l.unpromised-l.shared, l.unpromised/others), l.unpromised/(others*others))
	return max(l.free-min(l.free, w.taken[at]), grows, part/((n+1)*(own+1)))
}

// link is of for both directions: which of them data takes is not known of a SYN.
func (w widths) link(l network.Link) uint64 { return min(w.of(l.From), w.of(l.To)) }

// detour is how many times as wide a path has to be that is longer than the shortest.
const detour = 2

// widest finds up to k paths between two ports: each the widest of the shortest that those
// before it leave, or one that is longer by two links at most and at least twice as wide.
func (w widths) widest(t *network.Topology, from, to network.PortRef, k int) ([]found, error) {
	var all []found
	for range k {
		p, width, ok := t.Widest(from, to, 0, w.link)
		longer, more, better := t.Widest(from, to, graph.MostLonger, func(l network.Link) uint64 {
			if x := w.link(l); x >= detour*width {
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
		next := found{p.Hops, width, w.promised(p.Hops)}
		w.put(next)
		all = append(all, next)
		if len(next.hops) == 1 {
			break
		}
	}
	return all, nil
}
