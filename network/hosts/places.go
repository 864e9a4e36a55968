package hosts

import (
	"iter"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// places are where the hosts stand, and what room is left there; the table's mutex guards
// them.
type places struct {
	opts     *Options
	count    int // hosts in all
	switches map[openflow.DatapathID]*place
}

// place are the hosts that stand at one switch, by port.
type place struct {
	hosts int
	ports map[uint32]map[*entry]struct{}
	// once are hosts that had been seen but once when they were noted, the oldest first, by
	// port. Some have been seen again, or have gone.
	once map[uint32][]*entry
	left time.Time // when the switch left; zero while it is there
	// until is when claims about hosts that cannot be asked wait no longer.
	until time.Time
}

// add takes in a host that is new.
func (p *places) add(e *entry) {
	p.count++
	p.enter(e)
	p.noteOnce(e)
}

// remove takes a host out.
func (p *places) remove(e *entry) {
	p.count--
	p.leave(e)
}

// enter puts a host where its state says that it is, from where leave takes it.
func (p *places) enter(e *entry) {
	at := e.state.Load().at
	s := p.switches[at.Switch]
	if s == nil {
		s = &place{ports: map[uint32]map[*entry]struct{}{}, once: map[uint32][]*entry{}}
		p.switches[at.Switch] = s
	}
	if s.ports[at.Port] == nil {
		s.ports[at.Port] = map[*entry]struct{}{}
	}
	s.ports[at.Port][e] = struct{}{}
	s.hosts++
}

func (p *places) leave(e *entry) {
	at := e.state.Load().at
	s := p.switches[at.Switch]
	delete(s.ports[at.Port], e)
	if len(s.ports[at.Port]) == 0 {
		delete(s.ports, at.Port)
		delete(s.once, at.Port)
	}
	if s.hosts--; s.hosts == 0 {
		delete(p.switches, at.Switch)
	}
}

// all are the hosts everywhere.
func (p *places) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for d := range p.switches {
			for e := range p.at(d) {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// at are the hosts at a switch.
func (p *places) at(d openflow.DatapathID) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		s := p.switches[d]
		if s == nil {
			return
		}
		for _, hosts := range s.ports {
			for e := range hosts {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// behind are the hosts behind a port.
func (p *places) behind(at topology.PortRef) map[*entry]struct{} {
	if s := p.switches[at.Switch]; s != nil {
		return s.ports[at.Port]
	}
	return nil
}

// awaited says whether the hosts of a switch will be there to be asked soon, or have gone:
// it has left or come a moment ago, or was there before the start.
func (p *places) awaited(d openflow.DatapathID, now time.Time) bool {
	s := p.switches[d]
	return s != nil && now.Before(s.until)
}

// departedAge is how long hosts are kept of a switch that has left.
const departedAge = time.Minute

// SwitchDown notes that a switch has left. Its hosts are most likely still there when it
// comes back, which they are given a minute for. Claims about them wait for it for Grace.
func (t *Table) SwitchDown(d openflow.DatapathID, now time.Time) { t.setLeft(d, now, now) }

// SwitchUp notes that a switch is there. Its ports show within Grace whether hosts can be
// asked behind them.
func (t *Table) SwitchUp(d openflow.DatapathID, now time.Time) { t.setLeft(d, time.Time{}, now) }

func (t *Table) setLeft(d openflow.DatapathID, left, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.places.switches[d]; p != nil {
		p.left, p.until = left, now.Add(t.opts.Grace)
	}
}
