package hosts

import (
	"iter"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// places records which hosts are at which port, and how much room is left; the table's mutex
// guards it.
type places struct {
	opts     *Options
	count    int // hosts in all
	switches map[openflow.DatapathID]*switchHosts
}

// switchHosts holds the hosts at one switch, by port.
type switchHosts struct {
	hosts int
	ports map[uint32]map[*entry]struct{}
	// seenOnce holds, by port, the hosts that had been seen only once when they were added, the
	// oldest first. Some of them have been seen again or have left since.
	seenOnce map[uint32][]*entry
	leftAt   time.Time // when the switch disconnected; zero while it is connected
	// waitUntil is the time until which claims about hosts that cannot be asked wait.
	waitUntil time.Time
}

// add adds a new host.
func (p *places) add(e *entry) {
	p.count++
	p.enter(e)
	p.addSeenOnce(e)
}

// remove removes a host.
func (p *places) remove(e *entry) {
	p.count--
	p.leave(e)
}

// enter adds a host at the port in its state; leave removes it from there.
func (p *places) enter(e *entry) {
	at := e.state.Load().at
	s := p.switches[at.Switch]
	if s == nil {
		s = &switchHosts{ports: map[uint32]map[*entry]struct{}{}, seenOnce: map[uint32][]*entry{}}
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
		delete(s.seenOnce, at.Port)
	}
	if s.hosts--; s.hosts == 0 {
		delete(p.switches, at.Switch)
	}
}

// all returns an iterator over all hosts.
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

// at returns an iterator over the hosts at a switch.
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

// behind returns the hosts behind a port.
func (p *places) behind(at topology.PortRef) map[*entry]struct{} {
	if s := p.switches[at.Switch]; s != nil {
		return s.ports[at.Port]
	}
	return nil
}

// mayReturn reports whether the hosts of a switch may become reachable soon: the switch has
// disconnected or connected a moment ago, or was known before the controller's start.
func (p *places) mayReturn(d openflow.DatapathID, now time.Time) bool {
	s := p.switches[d]
	return s != nil && now.Before(s.waitUntil)
}

// departedAge is how long the hosts of a disconnected switch are kept.
const departedAge = time.Minute

// SwitchDown records that a switch has disconnected. Its hosts are probably still there when it
// returns, so they are kept for departedAge. Claims about them wait for the switch for Grace.
func (t *Table) SwitchDown(d openflow.DatapathID, now time.Time) { t.setLeft(d, now, now) }

// SwitchUp records that a switch has connected. The states of its ports show within Grace
// whether hosts can be asked behind them.
func (t *Table) SwitchUp(d openflow.DatapathID, now time.Time) { t.setLeft(d, time.Time{}, now) }

func (t *Table) setLeft(d openflow.DatapathID, left, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.places.switches[d]; p != nil {
		p.leftAt, p.waitUntil = left, now.Add(t.opts.Grace)
	}
}
