package hosts

import (
	"net/netip"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Pin says whose an address is, and where that host is.
type Pin struct {
	MAC openflow.MAC
	At  topology.PortRef
}

// pinsAllow reports whether a host may say that it is at a port, and has an address there,
// if any, as far as hosts are pinned.
func (t *Table) pinsAllow(mac openflow.MAC, addr netip.Addr, at topology.PortRef) bool {
	if place, pinned := t.macs[mac]; pinned && place != at {
		return false
	}
	pin, pinned := t.opts.Pinned[addr]
	return !pinned || pin.MAC == mac
}

// keeps asks the keeper, if there is one.
func (t *Table) keeps(mac openflow.MAC, addr netip.Addr) (Pin, bool) {
	if t.opts.Keeper == nil {
		return Pin{}, false
	}
	return t.opts.Keeper(mac, addr)
}
