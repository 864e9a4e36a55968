package kit

import (
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Shares counts what hosts behind each port, those behind all ports of each switch, and all
// hosts together have, so that none of them takes the room of the others. Make it with NewShares.
// It may not be used by two goroutines at once.
type Shares struct {
	all      int
	byPort   map[network.PortRef]int
	bySwitch map[openflow.DatapathID]int
}

// NewShares returns shares of which nobody has any.
func NewShares() Shares {
	return Shares{byPort: map[network.PortRef]int{}, bySwitch: map[openflow.DatapathID]int{}}
}

// Room reports whether a port may have one more, if there may be at most all together, ofSwitch at
// one switch, and ofPort at one port. At least one is allowed at each port and switch.
func (s *Shares) Room(at network.PortRef, all, ofSwitch, ofPort int) bool {
	return s.all < all && s.bySwitch[at.Switch] < max(ofSwitch, 1) && s.byPort[at] < max(ofPort, 1)
}

// Add counts n more for a port; n may be negative.
func (s *Shares) Add(at network.PortRef, n int) {
	s.all += n
	if s.byPort[at] += n; s.byPort[at] == 0 {
		delete(s.byPort, at)
	}
	if s.bySwitch[at.Switch] += n; s.bySwitch[at.Switch] == 0 {
		delete(s.bySwitch, at.Switch)
	}
}

// Has returns how many a port has, and all ports of its switch together.
func (s *Shares) Has(at network.PortRef) (ofPort, ofSwitch int) {
	return s.byPort[at], s.bySwitch[at.Switch]
}

// All returns how many there are together.
func (s *Shares) All() int { return s.all }
