package subflows

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// A subflow is placed by readings that are several seconds old: what they show may have ended, and
// they do not show the connection's first subflow. So the paths of a new subflow are read a few
// times a second. If it shares a full link while another path is free, it is moved at once.
const (
	// watchInterval is the time between two readings of the paths of watched subflows.
	watchInterval = 125 * time.Millisecond
	// newFor is how long a subflow is watched. It is watched for longer while it shares a full link.
	newFor = 1500 * time.Millisecond
	// maxWatched bounds the watched subflows. A new one replaces the oldest. maxWatchedEach bounds
	// those that enter by one port, so that a host cannot displace the subflows of others.
	maxWatched     = 32
	maxWatchedEach = 8
	// maxWatchedSwitches bounds the switches that are read at a time.
	maxWatchedSwitches = 64
	// aloneAt is the share of a link's traffic, in percent, from which a subflow has the link for
	// itself.
	aloneAt = 75
	// shareFor is the time after which the measurement of that share starts anew. Over so long a
	// time, it does not matter how late a switch is with its counters. shareValid is how long a share
	// is used.
	shareFor   = 4 * time.Second
	shareValid = time.Second
)

// watched is a subflow whose paths are read often.
type watched struct {
	f     *subflow
	since time.Time
	paths [][]network.Hop // the paths that it may take
	full  int             // number of consecutive readings that show a full link

	// The following fields measure the subflow's share of the full link. A switch updates the
	// counters of rules only now and then, so the share is measured between two changes of the
	// subflow's counter, the first of which may be its placement.
	placed   map[reserve.Link]portReading // the counters of its links when it was placed
	link     reserve.Link
	start    portReading // the link's counter at the start; zero before the first change
	before   uint64      // the subflow's counter at the start
	last     uint64      // the subflow's counter at the last reading
	lastRead time.Time
	share    uint64 // the latest measured share, in percent
	// shareUntil is until when it is used; zero if the share has not been measured yet.
	shareUntil time.Time
}

// alone reports whether the subflow was found to have its full link for itself.
func (w *watched) alone() bool { return w.share >= aloneAt }

// watchList holds the watched subflows, the oldest first.
type watchList struct {
	mu   sync.Mutex
	list []*watched
}

// add starts watching a subflow, unless too many that enter by the same port are watched.
func (l *watchList) add(w *watched) {
	l.mu.Lock()
	defer l.mu.Unlock()
	each := 0
	for _, other := range l.list {
		if other.f == w.f {
			return
		}
		if other.f.From == w.f.From {
			each++
		}
	}
	if each >= maxWatchedEach {
		return
	}
	if len(l.list) >= maxWatched {
		l.list = slices.Delete(l.list, 0, 1)
	}
	l.list = append(l.list, w)
}

// all returns the watched subflows, the newest first.
func (l *watchList) all() []*watched {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := slices.Clone(l.list)
	slices.Reverse(out)
	return out
}

// remove stops watching the subflows for which over returns true.
func (l *watchList) remove(over func(*watched) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, over)
}

// watchNew watches a subflow that has just been placed.
func (c *placer) watchNew(f *subflow) {
	c.startWatching(&watched{f: f, since: time.Now(), paths: c.chooser.flows.searched(f), placed: map[reserve.Link]portReading{}})
}

// watchShared watches a subflow that shares the full link from at, of whose traffic it has the given
// share in percent, until there is a better path.
func (c *placer) watchShared(f *subflow, at reserve.Link, share uint64) {
	now := time.Now()
	c.startWatching(&watched{f: f, since: now, link: at, share: share, shareUntil: now.Add(fullReadings * c.Interval)})
}

func (c *placer) startWatching(w *watched) {
	if w.paths == nil {
		c.choosing.Lock()
		all, err := c.chooser.loads.widths(w.since, c.chooser.flows.others(w.f)).widest(c.Network.Topology(), w.f.From, w.f.To, c.Paths)
		c.choosing.Unlock()
		if err != nil {
			return // there is no path at all
		}
		w.paths = pathsOf(all)
	}
	c.watched.add(w)
	c.watches.Wake()
}

// watch reads the paths of watched subflows at short intervals, and moves subflows accordingly,
// until none is watched.
func (s *Service) watch(ctx context.Context) {
	for ctx.Err() == nil {
		all := s.placer.watched.all()
		if len(all) == 0 {
			s.placer.chooser.loads.recent.clear()
			return
		}
		s.readWatched(ctx, all)
		relieved := map[network.PortRef]bool{}
		over := map[*watched]bool{}
		for _, w := range all {
			over[w] = !s.checkWatched(ctx, w, relieved)
		}
		s.placer.watched.remove(func(w *watched) bool { return over[w] })
		if tasks.Sleep(ctx, watchInterval) != nil {
			return
		}
	}
}

// readWatched reads the counters of the ports on the paths of watched subflows. Other paths than
// its own are read for a subflow on a full link only.
func (s *Service) readWatched(ctx context.Context, all []*watched) {
	var switches []openflow.DatapathID
	add := func(hops []network.Hop) {
		for _, hop := range hops {
			if len(switches) < maxWatchedSwitches && !slices.Contains(switches, hop.Switch) {
				switches = append(switches, hop.Switch)
			}
		}
	}
	for _, w := range all {
		add(w.f.path())
		if w.full > 0 {
			for _, hops := range w.paths {
				add(hops)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, recentFor) // later answers would be of no use
	defer cancel()
	each(switches, func(d openflow.DatapathID) {
		samples, err := s.Network.PortCounters(ctx, d)
		if err != nil {
			s.Log.Debug("reading ports", "switch", d, "error", err)
		}
		for _, x := range samples {
			s.placer.chooser.loads.recent.add(x)
		}
	})
}

// checkWatched moves a watched subflow that shares a full link if there is a better path, and
// reports whether it is to be watched any longer. relieved holds the links from which a subflow has
// been moved by the present readings.
func (s *Service) checkWatched(ctx context.Context, w *watched, relieved map[network.PortRef]bool) bool {
	now, loads := time.Now(), s.placer.chooser.loads
	hops := w.f.path()
	if hops == nil {
		return false
	}
	w.notePlaced(loads, hops)
	at, used, full := loads.recentlyFull(hops, now)
	if !full {
		w.full = 0
		return now.Sub(w.since) < newFor
	}
	w.setLink(at)
	w.full++
	better := s.placer.hasFreePath(w, at, used, now)
	if w.full >= fullReadings && now.After(w.shareUntil) && (better || w.shareUntil.IsZero()) {
		s.measureShare(ctx, w)
	}
	if better && !w.alone() && !now.After(w.shareUntil) && !relieved[at] && s.placer.widen(ctx, w.f, at, used*w.share/100, now) {
		relieved[at] = true
		return false
	}
	return !w.alone() || now.Sub(w.since) < newFor
}

// notePlaced records the counters of the links of a new subflow at their first reading.
func (w *watched) notePlaced(loads *linkLoads, hops []network.Hop) {
	for _, at := range flowpath.LinkPorts(hops) {
		if newest, _ := loads.recent.latest(at); w.placed != nil && w.placed[at].at.IsZero() {
			w.placed[at] = newest
		}
	}
}

// setLink sets the full link of which the subflow's share is measured. The measurement for a new
// subflow starts when it was placed.
func (w *watched) setLink(at reserve.Link) {
	if at == w.link {
		return
	}
	w.link, w.start, w.before, w.last, w.share, w.shareUntil = at, w.placed[at], 0, 0, 0, time.Time{}
	w.lastRead = w.start.at
}

// recentlyFull returns the first link of a path that recent readings show to be full, and the rate
// there in bits per second.
func (l *linkLoads) recentlyFull(hops []network.Hop, now time.Time) (at reserve.Link, used uint64, full bool) {
	for _, at := range flowpath.LinkPorts(hops) {
		capacity := l.book.Use(at).Capacity
		if used, known := l.recent.rate(at, now); known && capacity > 0 && used >= capacity/100*fullAt {
			return at, used, true
		}
	}
	return at, 0, false
}

// hasFreePath reports whether recent readings show a path that is better for a subflow on a full
// link than half of that link.
func (c *placer) hasFreePath(w *watched, at reserve.Link, used uint64, now time.Time) bool {
	widths := c.chooser.loads.widths(now, c.chooser.flows.others(w.f))
	return slices.ContainsFunc(w.paths, func(hops []network.Hop) bool {
		ports := flowpath.LinkPorts(hops)
		return !slices.Contains(ports, at) && !slices.ContainsFunc(ports, func(port reserve.Link) bool {
			_, known := c.chooser.loads.recent.rate(port, now)
			return !known || widths.gainAt(port) < used/2
		})
	})
}

// measureShare measures the subflow's share of the traffic on its full link. There is no new share
// until the subflow's counter has changed.
func (s *Service) measureShare(ctx context.Context, w *watched) {
	ctx, cancel := context.WithTimeout(ctx, recentFor)
	defer cancel()
	if err := s.Rules.ReadCounters(ctx, w.f.From.Switch); err != nil {
		s.Log.Debug("reading counters", "switch", w.f.From.Switch, "error", err)
		return
	}
	counted, _ := s.counted(w.f)
	direction := forward
	if slices.Contains(links(w.f.path(), reverse), w.link) {
		direction = reverse
	}
	newest, before := s.placer.chooser.loads.recent.latest(w.link)
	w.count(counted[direction], newest, before)
}

// count records a reading of the subflow's counter, which was taken with the newest reading of the
// link's counter. before is the reading of the link's counter before that.
func (w *watched) count(bytes uint64, newest, before portReading) {
	changed := bytes != w.last
	seen := newest.at.Sub(w.lastRead) <= recentFor // whether it is known when the counter changed
	w.last, w.lastRead = bytes, newest.at
	span := newest.at.Sub(w.start.at)
	switch {
	case !changed || !seen && (w.start.at.IsZero() || span < shareFor):
		return
	case w.start.at.IsZero() || bytes < w.before:
		w.start, w.before = newest, bytes
		return
	case before.bytes <= w.start.bytes:
		return
	}
	// The counter has changed at some time since the reading before, so the share lies between these.
	carried := (bytes - w.before) * 100
	least, most := carried/(newest.bytes-w.start.bytes), carried/(before.bytes-w.start.bytes)
	if most < aloneAt || least >= aloneAt {
		w.share, w.shareUntil = min(most, 100), newest.at.Add(shareValid)
	}
	if seen && span > shareFor {
		w.start, w.before = newest, bytes
	}
}
