package hosts

import (
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// againAfter is after how long a host that is seen counts as seen again. Who makes up
// addresses seldom uses one twice.
const againAfter = time.Second

// see notes that the host was seen, and says whether that was the first time that counts
// as again.
func (e *entry) see(now time.Time) (again bool) {
	e.seen.Store(now.UnixNano())
	return now.UnixNano()-e.added >= int64(againAfter) && !e.again.Load() && !e.again.Swap(true)
}

// noteOnce puts a new host among those that give way first.
func (p *places) noteOnce(e *entry) {
	at := e.state.Load().at
	s := p.switches[at.Switch]
	once := append(s.once[at.Port], e)
	if len(once) > 2*p.most(at) {
		kept := once[:0]
		for _, o := range once {
			if p.givesWay(o, at) {
				kept = append(kept, o)
			}
		}
		clear(once[len(kept):])
		once = kept
	}
	s.once[at.Port] = once
}

// givesWay reports whether a host stands behind a port and was seen but once.
func (p *places) givesWay(e *entry, at topology.PortRef) bool {
	_, there := p.behind(at)[e]
	return there && !e.again.Load()
}

// makeRoom finds the host that gives way where one more has no place, nil if one has:
// behind the same port if its share is full, else at the same switch, else where most of
// all are. Without one that has been seen but once there, there is no room.
func (p *places) makeRoom(at topology.PortRef) (old *entry, room bool) {
	switch {
	case p.portFull(at):
		old = p.oldest(at)
	case p.switchFull(at.Switch):
		old = p.oldest(p.fullest(at.Switch))
	case p.count >= p.opts.MaxHosts:
		var most openflow.DatapathID
		hosts := 0
		for d, s := range p.switches {
			if s.hosts > hosts || s.hosts == hosts && d < most {
				most, hosts = d, s.hosts
			}
		}
		old = p.oldest(p.fullest(most))
	default:
		return nil, true
	}
	return old, old != nil
}

// full says whether there is no room for one more host behind a port.
func (p *places) full(at topology.PortRef) bool {
	return p.count >= p.opts.MaxHosts || p.portFull(at) || p.switchFull(at.Switch)
}

func (p *places) portFull(at topology.PortRef) bool { return len(p.behind(at)) >= p.most(at) }

func (p *places) switchFull(d openflow.DatapathID) bool {
	s := p.switches[d]
	return s != nil && s.hosts >= p.opts.MaxPerSwitch
}

// most is how many hosts may be behind a port.
func (p *places) most(at topology.PortRef) int {
	if p.opts.Most != nil {
		if n := p.opts.Most(at); n > 0 {
			return n
		}
	}
	return p.opts.MaxPerPort
}

// fullest is the port of a switch with the most hosts that were seen but once.
func (p *places) fullest(d openflow.DatapathID) topology.PortRef {
	at := topology.PortRef{Switch: d}
	hosts := -1
	for port, once := range p.switches[d].once {
		if len(once) > hosts || len(once) == hosts && port < at.Port {
			at.Port, hosts = port, len(once)
		}
	}
	return at
}

// oldest takes the oldest host behind a port that was seen but once from those that give
// way; nil if there is none.
func (p *places) oldest(at topology.PortRef) *entry {
	s := p.switches[at.Switch]
	for once := s.once[at.Port]; len(once) > 0; {
		e := once[0]
		once[0] = nil
		once = once[1:]
		s.once[at.Port] = once
		if p.givesWay(e, at) {
			return e
		}
	}
	delete(s.once, at.Port)
	return nil
}
