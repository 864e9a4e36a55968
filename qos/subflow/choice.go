package subflow

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/qos/reserve"
	"github.com/sluice-net/sluice/qos/way"
)

const (
	// shownAfter is after how many readings of counters a measurement shows what was given.
	shownAfter = 2
	// fullFor is how many readings in a row must show a subflow on a full link until it is
	// moved; calmFor is how many readings it is left alone then.
	fullFor = 2
	calmFor = 4
	// fullAt is the share of a link's capacity, in percent, from which on it is full; gain is
	// how wide another path has to be for it, in percent of what it carries.
	fullAt = 90
	gain   = 150
)

// choice says where subflows go, by what it is told: it asks neither clock nor switch. Paths
// are asked for one after the other.
type choice struct {
	flows    *table
	loads    *loads
	paths    int           // of a connection
	interval time.Duration // of readings
}

func newChoice(flows *table, book *reserve.Book, paths int, interval time.Duration) choice {
	return choice{flows: flows, loads: newLoads(book, shownAfter*interval), paths: paths, interval: interval}
}

// next gives a subflow the next path of its connection; if there is none left that is whole, or more
// has been promised there since, the paths are found anew.
func (c *choice) next(f *subflow, t *network.Topology, now time.Time, whole func([]network.Hop) bool) (found, error) {
	next, ok := c.flows.take(f, now)
	if !ok || !whole(next.hops) || c.loads.promised(next.hops) > next.promised {
		all, err := c.loads.widths(now, c.flows.others(f)).widest(t, f.From, f.To, c.paths)
		if err != nil {
			return found{}, err
		}
		next = all[0]
		c.flows.keep(f, all[1:], now)
	}
	c.loads.begin(next, now)
	f.mu.Lock()
	f.chosen = next.hops
	f.mu.Unlock()
	return next, nil
}

// other is the widest path that there is for a subflow now.
func (c *choice) other(f *subflow, t *network.Topology, now time.Time) (found, error) {
	all, err := c.loads.widths(now, c.flows.others(f)).widest(t, f.From, f.To, 1)
	if err != nil {
		return found{}, err
	}
	return all[0], nil
}

// read takes readings of what subflows have carried, in bytes by direction, and notes what that
// is on links, which of them are silent, and that all give way to promises.
func (c *choice) read(flows []*subflow, counted func(*subflow) (bytes [directions]uint64, at time.Time)) {
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
				c.loads.book.Observe(f.yields(direction), rate)
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
			for _, at := range way.Ports(f.path()) {
				silent[at]++
			}
		}
	}
	c.loads.carry(rates, silent)
}

// relieve has subflows moved that a full link holds up, to paths that would give them more: one
// at a time from each link, and what that gives is known after the next readings. It ends when
// widen wants no more.
func (c *choice) relieve(now time.Time, widen func(f *subflow, at network.PortRef) (moved, more bool)) {
	relieved := map[network.PortRef]bool{}
	for _, f := range c.flows.all() {
		at, full := c.heldUp(f, now)
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

// heldUp finds the full link that holds a subflow up, once enough readings in a row have shown
// one. Nothing holds up one that is silent: it has nothing to carry, or has ended.
func (c *choice) heldUp(f *subflow, now time.Time) (at network.PortRef, full bool) {
	ports := way.Ports(f.path())
	i := slices.IndexFunc(ports, func(at network.PortRef) bool {
		u := c.loads.book.Use(at)
		return u.Capacity > 0 && u.Used >= u.Capacity/100*fullAt
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if i < 0 || now.Before(f.calm) {
		f.full = 0
		return at, false
	}
	if f.carries() == 0 { // or its counter is late, or it waits to try again: it is looked at again
		return at, false
	}
	f.full++
	return ports[i], f.full >= fullFor
}

// better is a path that gives a subflow more than one with a full link, if there is one. It is
// left alone for some time then.
func (c *choice) better(f *subflow, at network.PortRef, t *network.Topology, now time.Time) (found, bool) {
	old := f.path()
	if old == nil {
		return found{}, false
	}
	// It counts where it is: what it carries there is not free elsewhere, and the share
	// that another path would give it is without it.
	to, err := c.other(f, t, now)
	if err != nil || slices.Equal(to.hops, old) {
		return found{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = 0
	if to.width < f.carries()*gain/100 || slices.Contains(way.Ports(to.hops), at) {
		return found{}, false
	}
	f.calm = now.Add(calmFor * c.interval)
	return to, true
}
