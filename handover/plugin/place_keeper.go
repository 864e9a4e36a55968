package plugin

import (
	"net/netip"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Keeps tells the network where a device is that is attached, and by which of its MAC
// addresses: its class decides who may move it, and nobody's word in ARP. The device is
// looked for by that MAC address or, if it is zero, by its IP address.
func (s *core) Keeps(mac openflow.MAC, ip netip.Addr) (network.Pin, bool) {
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
