package hosts

import (
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// seenAgainAfter is the time after which a packet of a host counts as seeing it again. An
// attacker who makes up addresses seldom uses one twice.
const seenAgainAfter = time.Second

// markSeen records that the host was seen, and reports whether this was the first time that it
// was seen again.
func (e *entry) markSeen(now time.Time) (again bool) {
	e.seen.Store(now.UnixNano())
	return now.UnixNano()-e.added >= int64(seenAgainAfter) && !e.seenAgain.Load() && !e.seenAgain.Swap(true)
}

// addSeenOnce adds a new host to those that are evicted first.
func (p *places) addSeenOnce(e *entry) {
	at := e.state.Load().at
	s := p.switches[at.Switch]
	once := append(s.seenOnce[at.Port], e)
	if len(once) > 2*p.portLimit(at) {
		kept := once[:0]
		for _, o := range once {
			if p.evictable(o, at) {
				kept = append(kept, o)
			}
		}
		clear(once[len(kept):])
		once = kept
	}
	s.seenOnce[at.Port] = once
}

// evictable reports whether a host is behind a port and was seen only once.
func (p *places) evictable(e *entry, at topology.PortRef) bool {
	_, there := p.behind(at)[e]
	return there && !e.seenAgain.Load()
}

// makeRoom returns the host to evict for one more host at a port, nil if there is room. The host
// is behind the same port if that has reached its limit, otherwise at the same switch if that
// has, otherwise at the switch with the most hosts. ok is false if no host there can be evicted:
// only hosts that were seen once can.
func (p *places) makeRoom(at topology.PortRef) (old *entry, ok bool) {
	switch {
	case p.portFull(at):
		old = p.takeOldestSeenOnce(at)
	case p.switchFull(at.Switch):
		old = p.takeOldestSeenOnce(p.portWithMostSeenOnce(at.Switch))
	case p.count >= p.opts.MaxHosts:
		var most openflow.DatapathID
		hosts := 0
		for d, s := range p.switches {
			if s.hosts > hosts || s.hosts == hosts && d < most {
				most, hosts = d, s.hosts
			}
		}
		old = p.takeOldestSeenOnce(p.portWithMostSeenOnce(most))
	default:
		return nil, true
	}
	return old, old != nil
}

// full reports whether there is no room for one more host behind a port.
func (p *places) full(at topology.PortRef) bool {
	return p.count >= p.opts.MaxHosts || p.portFull(at) || p.switchFull(at.Switch)
}

func (p *places) portFull(at topology.PortRef) bool { return len(p.behind(at)) >= p.portLimit(at) }

func (p *places) switchFull(d openflow.DatapathID) bool {
	s := p.switches[d]
	return s != nil && s.hosts >= p.opts.MaxPerSwitch
}

// portLimit returns how many hosts may be behind a port.
func (p *places) portLimit(at topology.PortRef) int {
	if p.opts.PortLimit != nil {
		if n := p.opts.PortLimit(at); n > 0 {
			return n
		}
	}
	return p.opts.MaxPerPort
}

// portWithMostSeenOnce returns the port of a switch with the most hosts that were seen only
// once.
func (p *places) portWithMostSeenOnce(d openflow.DatapathID) topology.PortRef {
	at := topology.PortRef{Switch: d}
	hosts := -1
	for port, once := range p.switches[d].seenOnce {
		if len(once) > hosts || len(once) == hosts && port < at.Port {
			at.Port, hosts = port, len(once)
		}
	}
	return at
}

// takeOldestSeenOnce removes the oldest host behind a port that was seen only once from the list
// of such hosts and returns it, or nil.
func (p *places) takeOldestSeenOnce(at topology.PortRef) *entry {
	s := p.switches[at.Switch]
	for once := s.seenOnce[at.Port]; len(once) > 0; {
		e := once[0]
		once[0] = nil
		once = once[1:]
		s.seenOnce[at.Port] = once
		if p.evictable(e, at) {
			return e
		}
	}
	delete(s.seenOnce, at.Port)
	return nil
}
