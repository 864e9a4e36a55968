package subflows

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// Simulated places subflows like Service does, but in a simulated network. Its caller provides the
// information that Service gets from clocks, switches and packets. It must be used by one
// goroutine, and enforces no limits.
type Simulated struct {
	chooser
	topology *network.Topology
}

// NewSimulated returns a Simulated without subflows. use returns the measured use of a link at the
// last reading, and interval is the time between readings.
func NewSimulated(t *network.Topology, use func(reserve.Link) reserve.Use, paths int, interval time.Duration) *Simulated {
	return &Simulated{newChoice(newTable(0), reserve.New(use), paths, interval), t}
}

// Place gives a new subflow of a connection its path. name identifies the subflow in calls of other
// methods, and also orders subflows that began at the same time.
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
		s.loads.expectNothing(name)
		s.releaseYielding(f)
		s.flows.remove(f)
	}
}

// Read records the traffic that each subflow has carried since its begin, in bytes, and returns the
// new paths of subflows that are moved.
func (s *Simulated) Read(now time.Time, carried func(name string) uint64) (moved map[string][]network.Hop) {
	s.update(s.flows.all(), func(f *subflow) ([directions]uint64, time.Time) {
		return [directions]uint64{forward: carried(f.id)}, now
	})
	moved = map[string][]network.Hop{}
	s.relieve(now, func(f *subflow, at network.PortRef) (bool, bool) {
		to, ok := s.widerPath(f, at, f.rate(), s.topology, now)
		if ok {
			old := f.path()
			s.loads.start(f.id, to, now)
			s.bookYielding(f, to.hops)
			f.setPath(to.hops, nil)
			s.loads.remove(old)
			moved[f.id] = slices.Clone(to.hops)
		}
		return ok, true
	})
	return moved
}
