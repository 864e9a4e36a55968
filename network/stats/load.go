package stats

import (
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// Load is the measured state of one direction of a link.
type Load struct {
	// At is the end of the interval over which Used was measured; zero while nothing is known.
	At       time.Time
	Interval time.Duration
	// Used is in bits per second.
	Used uint64
	// Loss was computed by the latest CompareEnds.
	Loss
}

// Load returns the load of a link: the rate at which its sending end sends or, if that end does not
// count, the rate at which its receiving end receives.
func (t *Table) Load(l topology.Link) Load {
	t.mu.RLock()
	defer t.mu.RUnlock()
	from, to := t.best(l.From), t.best(l.To)
	var load Load
	if from != nil {
		if r, ok := from.latest(); ok {
			load.At, load.Interval, load.Used = r.At, r.Interval, uint64(r.TxBits)
		}
	}
	if load.Used == 0 && to != nil {
		if r, ok := to.latest(); ok {
			load.At, load.Interval, load.Used = r.At, r.Interval, uint64(r.RxBits)
		}
	}
	load.Loss = t.losses[linkEnds{l.From, l.To}]
	return load
}

// CompareEnds computes the losses of links for later calls of Load and Annotate. It takes more
// time than those, and gives new results only after new readings.
func (t *Table) CompareEnds(links []topology.Link) {
	losses := make(map[linkEnds]Loss, len(links))
	t.mu.RLock()
	for _, l := range links {
		from, to := t.best(l.From), t.best(l.To)
		if from == nil || to == nil {
			continue
		}
		losses[linkEnds{l.From, l.To}] = computeLoss(compareCounters(from, to, l.Latency, t.opts.LossWindow, l.Capacity))
	}
	t.mu.RUnlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.losses = losses
}

// Annotate fills in capacity, use and loss of links. speed returns the speed of a port in bits
// per second, zero while unknown; a link is as fast as the slower of its ends. configured takes
// precedence: it holds the capacities of links by the port from which they leave.
func (t *Table) Annotate(links []topology.Link, configured map[topology.PortRef]uint64, speed func(topology.PortRef) uint64) {
	for i := range links {
		l := &links[i]
		l.Capacity = capacity(l, configured, speed)
		_, l.Declared = configured[l.From]
		load := t.Load(*l)
		l.Used, l.Loss = load.Used, load.Path
	}
}

func capacity(l *topology.Link, configured map[topology.PortRef]uint64, speed func(topology.PortRef) uint64) uint64 {
	if c, ok := configured[l.From]; ok {
		return c
	}
	from, to := speed(l.From), speed(l.To)
	if from == 0 || to == 0 {
		return max(from, to)
	}
	return min(from, to)
}
