package handover

import (
	"net/netip"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// PlaceOf returns the port and MAC address of an attached device, and reports whether it uses the
// given address there. The network uses it so that only the device's class decides who may move
// it, and ARP does not. The device is found by the MAC address or, if that is zero, by the IP
// address.
func (s *core) PlaceOf(mac openflow.MAC, ip netip.Addr) (network.Pin, bool) {
	d, known := s.registry.DeviceByIP(ip)
	if !mac.IsZero() {
		d, known = s.registry.DeviceByMAC(mac)
	}
	l, leased := s.registry.Lease(d.ID)
	if !known || !leased || !l.Active(s.now()) || l.Attachment == nil {
		return network.Pin{}, false
	}
	kept := mac == l.Attachment.MAC
	if mac.IsZero() {
		kept = ip == l.IP
	}
	return network.Pin{MAC: l.Attachment.MAC, At: l.Attachment.At}, kept
}
