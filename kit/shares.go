package kit

import (
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Shares counts items by the port whose hosts have caused them, by that port's switch, and in all, so
// that the hosts of one port cannot use up the room of the others. Make it with NewShares. It is not
// safe for concurrent use.
type Shares struct {
	all      int
	byPort   map[network.PortRef]int
	bySwitch map[openflow.DatapathID]int
}

// NewShares returns shares without items.
func NewShares() Shares {
	return Shares{byPort: map[network.PortRef]int{}, bySwitch: map[openflow.DatapathID]int{}}
}

// Room reports whether a port may have one more item, given the bounds for all items, for one
// switch and for one port. A bound below one for a switch or a port counts as one.
func (s *Shares) Room(at network.PortRef, all, ofSwitch, ofPort int) bool {
	return s.all < all && s.bySwitch[at.Switch] < max(ofSwitch, 1) && s.byPort[at] < max(ofPort, 1)
}

// Add adds n, which may be negative, to the items of a port.
func (s *Shares) Add(at network.PortRef, n int) {
	s.all += n
	if s.byPort[at] += n; s.byPort[at] == 0 {
		delete(s.byPort, at)
	}
	if s.bySwitch[at.Switch] += n; s.bySwitch[at.Switch] == 0 {
		delete(s.bySwitch, at.Switch)
	}
}

// Has returns the number of items of a port, and of all ports of its switch.
func (s *Shares) Has(at network.PortRef) (ofPort, ofSwitch int) {
	return s.byPort[at], s.bySwitch[at.Switch]
}

// All returns the number of all items.
func (s *Shares) All() int { return s.all }
