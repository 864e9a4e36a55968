package hosts

import (
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// againAfter is after how long a host that is seen counts as seen again. Who makes up
	// addresses seldom uses one twice.
	againAfter = time.Second
	// departedAge is how long hosts are kept of a switch that has left.
	departedAge = time.Minute
)

// see notes that the host was seen, and says whether that was the first time that counts
// as again.
func (e *entry) see(now time.Time) (again bool) {
	e.seen.Store(now.UnixNano())
	return now.UnixNano()-e.added >= int64(againAfter) && !e.again.Load() && !e.again.Swap(true)
}

// SwitchDown notes that a switch has left. Its hosts are most likely still there when it
// comes back, which they are given a minute for. Claims about them wait for it for Grace.
func (t *Table) SwitchDown(d openflow.DatapathID, now time.Time) { t.setLeft(d, now, now) }

// SwitchUp notes that a switch is there. Its ports show within Grace whether hosts can be
// asked behind them.
func (t *Table) SwitchUp(d openflow.DatapathID, now time.Time) { t.setLeft(d, time.Time{}, now) }

func (t *Table) setLeft(d openflow.DatapathID, left, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.places[d]; p != nil {
		p.left, p.until = left, now.Add(t.opts.Grace)
	}
}

// noteOnce puts a new host among those that give way first; the mutex is held.
func (t *Table) noteOnce(e *entry, at topology.PortRef) {
	p := t.places[at.Switch]
	once := append(p.once[at.Port], e)
	if len(once) > 2*t.most(at) {
		kept := once[:0]
		for _, o := range once {
			if t.givesWay(o, at) {
				kept = append(kept, o)
			}
		}
		clear(once[len(kept):])
		once = kept
	}
	p.once[at.Port] = once
}

// givesWay reports whether a host stands behind a port and was seen but once.
func (t *Table) givesWay(e *entry, at topology.PortRef) bool {
	_, there := t.behind(at)[e]
	return there && !e.again.Load()
}

// makeRoom has a host give way where one more has no place: behind the same port if its
// share is full, else at the same switch, else where most of all are. Without one that
// has been seen but once there, there is no room.
func (t *Table) makeRoom(at topology.PortRef) (gone []Change, room bool) {
	p := t.places[at.Switch]
	switch {
	case len(t.behind(at)) >= t.most(at):
		return t.evict(at)
	case p != nil && p.hosts >= t.opts.MaxPerSwitch:
		return t.evict(t.fullest(at.Switch))
	case t.count >= t.opts.MaxHosts:
		var most openflow.DatapathID
		hosts := 0
		for d, p := range t.places {
			if p.hosts > hosts || p.hosts == hosts && d < most {
				most, hosts = d, p.hosts
			}
		}
		return t.evict(t.fullest(most))
	}
	return nil, true
}

// most is how many hosts may be behind a port.
func (t *Table) most(at topology.PortRef) int {
	if t.opts.Most != nil {
		if n := t.opts.Most(at); n > 0 {
			return n
		}
	}
	return t.opts.MaxPerPort
}

// fullest is the port of a switch with the most hosts that were seen but once.
func (t *Table) fullest(d openflow.DatapathID) topology.PortRef {
	at := topology.PortRef{Switch: d}
	hosts := -1
	for port, once := range t.places[d].once {
		if len(once) > hosts || len(once) == hosts && port < at.Port {
			at.Port, hosts = port, len(once)
		}
	}
	return at
}

// evict removes the oldest host behind a port that was seen but once.
func (t *Table) evict(at topology.PortRef) (gone []Change, room bool) {
	p := t.places[at.Switch]
	for once := p.once[at.Port]; len(once) > 0; {
		e := once[0]
		once[0] = nil
		once = once[1:]
		p.once[at.Port] = once
		if t.givesWay(e, at) {
			return []Change{t.remove(e)}, true
		}
	}
	delete(p.once, at.Port)
	return nil, false
}
