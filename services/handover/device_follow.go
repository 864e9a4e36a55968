package handover

import (
	"context"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// followInterval is the shortest time between two attempts to follow a device by its packets.
const followInterval = time.Second

// followPacket moves a device to the port where one of its packets has arrived, as if the device
// had asked for its address there. Some DHCP clients do not watch their link and would send
// nothing before their lease is to be renewed.
//
// A packet is weaker evidence than a request. It counts only if the port where the device was has
// lost its link, if the packet has the MAC address that the device used there, and if the device
// may move there by an unsigned request. The request that is made from the packet passes all
// checks of one that was sent.
func (s *packetHandler) followPacket(at network.PortRef, h *packet.Headers, arrived time.Time) {
	d, known := s.registry.DeviceByIP(h.Src)
	if !known || !s.hasLeft(d, at, h) {
		return
	}
	v := s.view.Load()
	if v == nil || !s.net.Topology().IsEdge(at) {
		return
	}
	if _, border := v.borders[at]; border || !s.mayFollow(d.ID, arrived) {
		return
	}
	l, _ := s.registry.Lease(d.ID)
	m, err := dhcpv4.New(
		dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), dhcpv4.WithHwAddr(l.MAC[:]),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(l.IP.AsSlice())),
	)
	if err != nil {
		s.log.Warn("a device that has moved is not followed", "device", d.ID, "error", err)
		return
	}
	if len(l.ClientID) > 0 {
		m.UpdateOption(dhcpv4.OptClientIdentifier(l.ClientID))
	}
	in := incoming{at: at, src: h.EthSrc, chaddr: l.MAC, message: m.ToBytes(), arrived: arrived, seen: true}
	if err := s.queue.Add(d.ID, func(ctx context.Context) { s.handleDHCP(ctx, in) }); err != nil {
		s.metrics.dropped.WithLabelValues("waiting").Inc()
	}
}

// hasLeft reports whether a device is no longer where its lease says, so that a packet at another
// port may be the device's.
func (s *packetHandler) hasLeft(d registry.Device, at network.PortRef, h *packet.Headers) bool {
	l, ok := s.registry.Lease(d.ID)
	if !ok || !l.Active(s.now()) || l.Attachment == nil || l.Attachment.Peer != "" || d.Home != "" {
		return false
	}
	if len(d.Key) > 0 || s.registry.ClassOf(d).Trigger == registry.TriggerSigned {
		return false // its packets are not signed
	}
	up, known := s.net.PortUp(l.Attachment.At)
	return known && !up && l.Attachment.At != at && l.Attachment.MAC == h.EthSrc
}

// mayFollow reports whether a device may be followed again, and records that it is.
func (s *packetHandler) mayFollow(id string, now time.Time) bool {
	m := s.placement.mobileOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(m.followed) < followInterval {
		return false
	}
	m.followed = now
	return true
}
