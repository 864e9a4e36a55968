package subflows

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

const (
	// shownReadings is the number of readings of counters after which measurements include the
	// traffic of a subflow that was just placed.
	shownReadings = 2
	// fullReadings is the number of consecutive readings that must show a subflow on a full link
	// before the subflow is moved. settleReadings is the number of readings after a move during
	// which it is not moved again.
	fullReadings   = 2
	settleReadings = 4
	// fullAt is the utilisation, in percent of the capacity, from which a link counts as full.
	// minGain is the least width of another path, in percent of the subflow's present rate, for
	// which a subflow is moved.
	fullAt  = 90
	minGain = 150
)

// chooser chooses the paths of subflows. Its callers provide times and measurements, so that it
// needs neither clock nor switches. Calls that choose paths must not run concurrently.
type chooser struct {
	flows    *table
	loads    *linkLoads
	paths    int           // per connection
	interval time.Duration // between readings
}

func newChoice(flows *table, book *reserve.Book, paths int, interval time.Duration) chooser {
	return chooser{flows: flows, loads: newLoads(book, shownReadings*interval), paths: paths, interval: interval}
}

// nextPath gives a subflow the next path of its connection. If no intact path is left, or more
// bandwidth has been promised on it since it was found, nextPath searches the connection's paths
// anew. whole reports whether a path is intact.
func (c *chooser) nextPath(f *subflow, t *network.Topology, now time.Time, whole func([]network.Hop) bool) (found, error) {
	next, ok := c.flows.take(f, now)
	if !ok || !whole(next.hops) || c.loads.promisedOn(next.hops) > next.promised {
		all, err := c.loads.widths(now, c.flows.others(f)).widest(t, f.From, f.To, c.paths)
		if err != nil {
			return found{}, err
		}
		next = all[0]
		c.flows.keep(f, all, now)
	}
	c.loads.start(f.id, next, now)
	f.mu.Lock()
	f.chosen = next.hops
	f.mu.Unlock()
	return next, nil
}

// widestPath returns the widest path for a subflow at present.
func (c *chooser) widestPath(f *subflow, t *network.Topology, now time.Time) (found, error) {
	all, err := c.loads.widths(now, c.flows.others(f)).widest(t, f.From, f.To, 1)
	if err != nil {
		return found{}, err
	}
	return all[0], nil
}

// update records readings of the traffic that subflows have carried, in bytes by direction. From
// these it derives the load of links, which subflows are silent, and how much traffic yields to
// promises, that is, leaves its bandwidth available for them.
func (c *chooser) update(flows []*subflow, counted func(*subflow) (bytes [directions]uint64, at time.Time)) {
	rates, silent := map[reserve.Link]uint64{}, map[reserve.Link]int{}
	for _, f := range flows {
		bytes, at := counted(f)
		nothing, read := true, false
		for direction := range directions {
			f.mu.Lock()
			rate, known := f.counters[direction].Read(bytes[direction], at)
			last := f.counters[direction].Rate
			f.mu.Unlock()
			if known {
				c.loads.book.Observe(f.yieldKey(direction), rate)
			}
			nothing, read = nothing && rate == 0, read || known
			for _, at := range links(f.path(), direction) {
				rates[at] += last
			}
		}
		f.mu.Lock()
		if read {
			f.silent = nothing
		}
		nothing = f.silent
		f.mu.Unlock()
		if nothing {
			c.loads.expectNothing(f.id)
			for _, at := range flowpath.LinkPorts(f.path()) {
				silent[at]++
			}
		}
	}
	c.loads.setMeasured(rates, silent)
}

// relieve moves subflows that a full link limits to paths that would give them more. From each link
// it moves one at a time, because the effect is known only after the next readings. widen moves one
// subflow; relieve stops when widen returns false for more.
func (c *chooser) relieve(now time.Time, widen func(f *subflow, at network.PortRef) (moved, more bool)) {
	relieved := map[network.PortRef]bool{}
	for _, f := range c.flows.all() {
		at, full := c.bottleneck(f, now)
		if !full || relieved[at] {
			continue
		}
		moved, more := widen(f, at)
		if !more {
			return
		}
		relieved[at] = moved
	}
}

// bottleneck returns the full link that limits a subflow, and reports whether enough consecutive
// readings have shown one. Nothing limits a silent subflow: it has no data to send, or has ended.
func (c *chooser) bottleneck(f *subflow, now time.Time) (at network.PortRef, full bool) {
	ports := flowpath.LinkPorts(f.path())
	i := slices.IndexFunc(ports, func(at network.PortRef) bool {
		u, _ := c.loads.use(at, now)
		return u.Capacity > 0 && u.Used >= u.Capacity/100*fullAt
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if i < 0 || now.Before(f.settleUntil) {
		f.full = 0
		return at, false
	}
	if f.currentRate() == 0 { // perhaps the counter is late, or the host waits to retransmit: the count of readings stays
		return at, false
	}
	f.full++
	return ports[i], f.full >= fullReadings
}

// widerPath returns a path that gives a subflow more than the given rate, which it has on its
// present path, where the link from at is full. It reports whether there is one. The subflow is then
// not moved again for settleReadings readings.
func (c *chooser) widerPath(f *subflow, at network.PortRef, rate uint64, t *network.Topology, now time.Time) (found, bool) {
	old := f.path()
	if old == nil {
		return found{}, false
	}
	// The subflow still counts on its present path: the bandwidth that it uses there is not free
	// for other paths, and its expected share of another path does not include that bandwidth.
	to, err := c.widestPath(f, t, now)
	if err != nil || slices.Equal(to.hops, old) {
		return found{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = 0
	if to.width < rate*minGain/100 || slices.Contains(flowpath.LinkPorts(to.hops), at) {
		return found{}, false
	}
	f.settleUntil = now.Add(settleReadings * c.interval)
	return to, true
}
