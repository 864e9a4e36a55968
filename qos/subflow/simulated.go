package subflow

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/qos/reserve"
)

// Simulated places subflows as Service does, in a network that is simulated: it is told what
// Service learns from clocks, switches and packets. It is for one goroutine, and has no bounds.
type Simulated struct {
	choice
	topology *network.Topology
}

// NewSimulated is one without subflows. use tells what was measured on links at the last reading,
// interval is how often they are read.
func NewSimulated(t *network.Topology, use func(reserve.Link) reserve.Use, paths int, interval time.Duration) *Simulated {
	return &Simulated{newChoice(newTable(0), reserve.New(use), paths, interval), t}
}

// Place gives a new subflow of a connection its path. Other methods tell it by its name, after
// which those of one time are ordered, too.
func (s *Simulated) Place(name string, token uint32, from, to network.PortRef, now time.Time) ([]network.Hop, error) {
	f := &subflow{id: name, stored: stored{Connection: connection{Token: token}, From: from, To: to, Since: now}}
	s.flows.mu.Lock()
	s.flows.add(f)
	s.flows.mu.Unlock()
	next, err := s.next(f, s.topology, now, func([]network.Hop) bool { return true })
	if err != nil {
		s.flows.remove(f)
		return nil, err
	}
	s.yield(f, next.hops)
	f.enter(next.hops, nil)
	return next.hops, nil
}

// End takes a subflow out, as when its rules have been idle.
func (s *Simulated) End(name string) {
	if f := s.flows.named(name); f != nil {
		s.loads.leave(f.path())
		s.unyield(f)
		s.flows.remove(f)
	}
}

// Read takes a reading of what each subflow has carried, in bytes, and tells which take another
// path from now on.
func (s *Simulated) Read(now time.Time, carried func(name string) uint64) (moved map[string][]network.Hop) {
	s.read(s.flows.all(), func(f *subflow) ([directions]uint64, time.Time) {
		return [directions]uint64{there: carried(f.id)}, now
	})
	moved = map[string][]network.Hop{}
	s.relieve(now, func(f *subflow, at network.PortRef) (bool, bool) {
		to, ok := s.better(f, at, s.topology, now)
		if ok {
			old := f.path()
			s.loads.begin(to, now)
			s.yield(f, to.hops)
			f.enter(to.hops, nil)
			s.loads.leave(old)
			moved[f.id] = slices.Clone(to.hops)
		}
		return ok, true
	})
	return moved
}
