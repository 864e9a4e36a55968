package stats

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// Point is the measured state of one direction of a link at one time.
type Point struct {
	// At is the end of the interval over which Used was measured.
	At       time.Time
	Interval time.Duration
	// Used and Capacity are in bits per second, zero while unknown.
	Used, Capacity  uint64
	Latency, Jitter time.Duration
	// Loss is the share of packets that the path loses. Queue is the share that queues have lost
	// over the loss window.
	Loss, Queue float64
}

// Available returns the capacity that was not used.
func (p Point) Available() uint64 { return p.Capacity - min(p.Used, p.Capacity) }

// Track is the history of one direction of a link, the oldest point first.
type Track struct {
	From, To topology.PortRef
	Points   []Point
}

// History holds points of links, including those that are down now. It is safe for concurrent
// use.
type History struct {
	points int
	span   time.Duration
	mu     sync.RWMutex
	links  map[linkEnds]*ring[Point]
}

// NewHistory returns an empty history that reaches back by span, with one point of each link in
// an interval.
func NewHistory(span, interval time.Duration) *History {
	return &History{points: int(max(1, span/interval)), span: span, links: map[linkEnds]*ring[Point]{}}
}

// Record adds a point for each of the links. load returns the load of a link. A link that was not
// measured since its last point gets no new point.
func (h *History) Record(now time.Time, links []topology.Link, load func(topology.Link) Load) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range links {
		m := load(l)
		if m.At.IsZero() {
			continue
		}
		key := linkEnds{l.From, l.To}
		r := h.links[key]
		if r == nil {
			r = new(ring[Point])
			h.links[key] = r
		}
		if last, ok := r.latest(); ok && !m.At.After(last.At) {
			continue
		}
		r.push(Point{
			At: m.At, Interval: m.Interval, Used: m.Used, Capacity: l.Capacity,
			Latency: l.Latency, Jitter: l.Jitter, Loss: m.Path, Queue: m.Queue,
		}, h.points)
	}
	for key, r := range h.links {
		if last, _ := r.latest(); now.Sub(last.At) > h.span {
			delete(h.links, key)
		}
	}
}

// Since returns the points after a time for the link that leaves by a port: one track, or
// several if the link has led to several ports.
func (h *History) Since(from topology.PortRef, since time.Time) []Track {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var out []Track
	for key, r := range h.links {
		if key.from != from {
			continue
		}
		t := Track{From: key.from, To: key.to}
		for p := range r.all() {
			if p.At.After(since) {
				t.Points = append(t.Points, p)
			}
		}
		if len(t.Points) > 0 {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Track) int {
		return cmp.Or(a.Points[0].At.Compare(b.Points[0].At), a.To.Compare(b.To))
	})
	return out
}
