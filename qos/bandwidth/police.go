package bandwidth

import (
	"context"
	"fmt"
	"sync"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// promiseBurst is the part of a second's traffic that the meter of an accepted flow lets
// through at once: TCP that is held to a rate gets all of it with a quarter of a second
// (99 to 102 % at round trips of 0, 20 and 80 ms), and 55 to 97 % with a tenth.
const promiseBurst = 4

// Directions of a flow.
const (
	there = iota
	back
	directions
)

var policeKeys = [directions]string{"police/", "police-back/"}

// policeKey is the name in the ledger of a meter that holds a flow to its promise.
func (f *flow) policeKey(direction int) string { return policeKeys[direction] + f.id }

// policeID is the number of that meter. Flows have low ones, for switches that have few
// meters, and leave out those of links.
func (f *flow) policeID(direction int) uint32 {
	id := uint32(directions*(f.number-1)+direction) + 1
	if id < meterBase {
		return id
	}
	return id + meterBase
}

// police makes the meters that hold an accepted flow to what it is promised, so that what
// it sends beyond is nobody else's loss: one where it enters, and one where its answers
// do, if its definition says how much they are. It tells the meter for traffic out of a
// port. A switch that takes no meter leaves the flow as it is: then what it sends beyond
// its promise counts as traffic of others (package reserve), and is told.
func (s *Service) police(ctx context.Context, f *flow, path network.Path) func(network.PortRef) uint32 {
	first, last := path.Hops[0], path.Hops[len(path.Hops)-1]
	outs := [directions]network.PortRef{{Switch: first.Switch, Port: first.Out}, {Switch: last.Switch, Port: last.In}}
	rates := [directions]uint64{there: f.rate}
	if f.holdBack {
		rates[back] = f.reverse
	}
	meters := map[network.PortRef]uint32{}
	var mu sync.Mutex
	each([]int{there, back}, func(direction int) {
		if rates[direction] == 0 || s.isUnmetered(f, direction) {
			return
		}
		m := policeMeter(outs[direction].Switch, f.policeID(direction), rates[direction])
		err := s.rules.Apply(ctx, f.policeKey(direction), network.Program{Meters: []network.Meter{m}}, network.ApplyOptions{AllowDown: true})
		if err != nil {
			s.log.Warn("a flow is not held to what it is promised", "flow", f.header, "switch", m.Switch, "error", err)
			s.mu.Lock()
			f.unmetered[direction] = true
			s.mu.Unlock()
			return
		}
		mu.Lock()
		defer mu.Unlock()
		meters[outs[direction]] = m.ID
	})
	return func(at network.PortRef) uint32 { return meters[at] }
}

// isUnmetered says that the switch has taken no meter for a flow.
func (s *Service) isUnmetered(f *flow, direction int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.unmetered[direction]
}

// unpolice takes the meters of a flow away. No rule uses them.
func (s *Service) unpolice(ctx context.Context, f *flow) {
	each([]int{there, back}, func(direction int) {
		if err := s.rules.Remove(ctx, f.policeKey(direction)); err != nil {
			s.log.Warn("removing the meter of a flow", "flow", f.header, "error", err)
		}
	})
}

func policeMeter(sw openflow.DatapathID, id uint32, rate uint64) network.Meter {
	kbit := kilobits(rate)
	return network.Meter{
		Switch: sw, ID: id, Flags: openflow.MeterFlagKbps | openflow.MeterFlagBurst,
		Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: kbit, Burst: max(kbit/promiseBurst, minBurst)}},
	}
}

// kilobits is a rate as a meter has it, no less than in bit/s.
func kilobits(rate uint64) uint32 { return uint32(min((rate+999)/1000, 1<<31)) }

// excess notes what a flow sends beyond its promise, at a reading of its counters, and
// tells of it once that two have shown it. It returns the part of what it sends that is
// the promise's: a meter lets no more through. The lock is held.
func (s *Service) excess(f *flow, rate uint64) (own uint64, tell bool) {
	if f.state != StateAccepted || rate <= f.rate+f.rate*tolerance/100 {
		f.over, f.excess = 0, 0
		return rate, false
	}
	if f.over++; f.over >= pressedFor {
		f.excess = rate - f.rate
		tell, f.told = !f.told, true
	}
	if f.unmetered[there] {
		return rate, tell
	}
	return f.rate, tell
}

// complaint is what is wrong with an accepted flow, or nothing. The lock is held.
func (f *flow) complaint() string {
	switch {
	case f.excess > 0 && f.unmetered[there]:
		return fmt.Sprintf("it sends %d bit/s more than its %d, and its first switch takes no meter to hold it", f.excess, f.rate)
	case f.excess > 0:
		return fmt.Sprintf("it sends %d bit/s more than its %d, which its first switch drops", f.excess, f.rate)
	}
	return f.pressure
}
