package subflows

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

const (
	// shownReadings is after how many readings of counters a measurement includes what was
	// placed.
	shownReadings = 2
	// fullReadings is how many readings in a row must show a subflow on a full link until
	// the subflow is moved. settleReadings is for how many readings it is left alone after
	// that.
	fullReadings   = 2
	settleReadings = 4
	// fullAt is the share of a link's capacity, in percent, from which on it counts as
	// full. minGain is how wide another path has to be, in percent of what the subflow
	// carries.
	fullAt  = 90
	minGain = 150
)

// chooser chooses the paths of subflows. It is given times and measurements, and asks
// neither clock nor switch. Calls that choose paths must not run concurrently.
type chooser struct {
	flows    *table
	loads    *linkLoads
	paths    int           // per connection
	interval time.Duration // between readings
}

func newChoice(flows *table, book *reserve.Book, paths int, interval time.Duration) chooser {
	return chooser{flows: flows, loads: newLoads(book, shownReadings*interval), paths: paths, interval: interval}
}

// nextPath gives a subflow the next path of its connection. If no intact one is left, or
// more has been promised there since, it finds the connection's paths anew.
func (c *chooser) nextPath(f *subflow, t *network.Topology, now time.Time, whole func([]network.Hop) bool) (found, error) {
	next, ok := c.flows.take(f, now)
	if !ok || !whole(next.hops) || c.loads.promisedOn(next.hops) > next.promised {
		all, err := c.loads.widths(now, c.flows.others(f)).widest(t, f.From, f.To, c.paths)
		if err != nil {
			return found{}, err
		}
		next = all[0]
		c.flows.keep(f, all[1:], now)
	}
	c.loads.start(next, now)
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

// update records readings of what subflows have carried, in bytes by direction: the load of
// links, which subflows are silent, and that all yield to promises.
func (c *chooser) update(flows []*subflow, counted func(*subflow) (bytes [directions]uint64, at time.Time)) {
	rates, silent := map[reserve.Link]uint64{}, map[reserve.Link]int{}
	for _, f := range flows {
		bytes, read := counted(f)
		nothing := true
		for direction := range directions {
			f.mu.Lock()
			rate, known := f.counters[direction].Read(bytes[direction], read)
			last := f.counters[direction].Rate
			f.mu.Unlock()
			if known {
				c.loads.book.Observe(f.yieldKey(direction), rate)
			}
			nothing = nothing && known && rate == 0
			for _, at := range links(f.path(), direction) {
				rates[at] += last
			}
		}
		f.mu.Lock()
		f.silent = nothing
		f.mu.Unlock()
		if nothing {
			for _, at := range flowpath.LinkPorts(f.path()) {
				silent[at]++
			}
		}
	}
	c.loads.setMeasured(rates, silent)
}

// relieve moves subflows that a full link limits to paths that would give them more: one at
// a time from each link, because the effect is known after the next readings. It stops when
// widen reports that it wants no more.
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

// bottleneck returns the full link that limits a subflow, and reports whether enough
// readings in a row have shown one. Nothing limits a silent subflow: it has nothing to
// carry, or has ended.
func (c *chooser) bottleneck(f *subflow, now time.Time) (at network.PortRef, full bool) {
	ports := flowpath.LinkPorts(f.path())
	i := slices.IndexFunc(ports, func(at network.PortRef) bool {
		u := c.loads.book.Use(at)
		return u.Capacity > 0 && u.Used >= u.Capacity/100*fullAt
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if i < 0 || now.Before(f.settleUntil) {
		f.full = 0
		return at, false
	}
	if f.currentRate() == 0 { // it may also be that its counter is late or that it waits to retransmit, so the count of readings stays
		return at, false
	}
	f.full++
	return ports[i], f.full >= fullReadings
}

// widerPath returns a path that gives a subflow more than its present one with a full link,
// and reports whether there is one. The subflow is then left alone for some time.
func (c *chooser) widerPath(f *subflow, at network.PortRef, t *network.Topology, now time.Time) (found, bool) {
	old := f.path()
	if old == nil {
		return found{}, false
	}
	// The subflow still counts on its present path: what it carries there is not free
	// elsewhere, and the share that another path would give it does not include it.
	to, err := c.widestPath(f, t, now)
	if err != nil || slices.Equal(to.hops, old) {
		return found{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = 0
	if to.width < f.currentRate()*minGain/100 || slices.Contains(flowpath.LinkPorts(to.hops), at) {
		return found{}, false
	}
	f.settleUntil = now.Add(settleReadings * c.interval)
	return to, true
}
