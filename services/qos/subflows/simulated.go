package subflows

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// Simulated places subflows as Service does, but in a simulated network: it is given what
// Service learns from clocks, switches and packets. It must be used by one goroutine, and
// enforces no limits.
type Simulated struct {
	chooser
	topology *network.Topology
}

// NewSimulated returns a Simulated without subflows. use returns what was measured on a
// link at the last reading, and interval is the interval of readings.
func NewSimulated(t *network.Topology, use func(reserve.Link) reserve.Use, paths int, interval time.Duration) *Simulated {
	return &Simulated{newChoice(newTable(0), reserve.New(use), paths, interval), t}
}

// Place gives a new subflow of a connection its path. Other methods identify the subflow by
// its name, which also orders subflows of the same time.
func (s *Simulated) Place(name string, token uint32, from, to network.PortRef, now time.Time) ([]network.Hop, error) {
	f := &subflow{id: name, stored: stored{Connection: connection{Token: token}, From: from, To: to, Since: now}}
	s.flows.mu.Lock()
	s.flows.add(f)
	s.flows.mu.Unlock()
	next, err := s.nextPath(f, s.topology, now, func([]network.Hop) bool { return true })
	if err != nil {
		s.flows.remove(f)
		return nil, err
	}
	s.bookYielding(f, next.hops)
	f.setPath(next.hops, nil)
	return next.hops, nil
}

// End removes a subflow, as when its rules have been idle.
func (s *Simulated) End(name string) {
	if f := s.flows.named(name); f != nil {
		s.loads.remove(f.path())
		s.releaseYielding(f)
		s.flows.remove(f)
	}
}

// Read records what each subflow has carried, in bytes, and returns those that take another
// path from now on.
func (s *Simulated) Read(now time.Time, carried func(name string) uint64) (moved map[string][]network.Hop) {
	s.update(s.flows.all(), func(f *subflow) ([directions]uint64, time.Time) {
		return [directions]uint64{forward: carried(f.id)}, now
	})
	moved = map[string][]network.Hop{}
	s.relieve(now, func(f *subflow, at network.PortRef) (bool, bool) {
		to, ok := s.widerPath(f, at, s.topology, now)
		if ok {
			old := f.path()
			s.loads.start(to, now)
			s.bookYielding(f, to.hops)
			f.setPath(to.hops, nil)
			s.loads.remove(old)
			moved[f.id] = slices.Clone(to.hops)
		}
		return ok, true
	})
	return moved
}
