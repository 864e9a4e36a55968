package handover

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

const (

	// Offsets into a DHCP message, and its shortest length.
	dhcpChaddr  = 28
	dhcpOptions = 240
)

// ownerHash is the owner part of the cookies of the service's rules.
var ownerHash = rule.OwnerHash(Name)

// handle handles DHCP and ARP that concern devices, and ends the chain for them. It runs
// on the switch's goroutine and never waits.
func (s *packetHandler) handle(p *network.PacketIn) network.Verdict {
	at := network.PortRef{Switch: p.Switch.DPID(), Port: p.InPort}
	if rule.Cookie(p.Cookie).Owner() == ownerHash && s.guards.isSpoofed(&p.Headers) {
		v := s.guards.handleSpoofed(at, p.Headers.Src, p.Resubmit)
		s.followPacket(at, &p.Headers, p.At)
		return v
	}
	if isEarly(p) {
		out, ours := s.guards.earlyActions(at, &p.Headers)
		switch {
		case ours && len(out) > 0 && s.guards.hasBorder(at.Switch):
			return network.Continue // other services handle the packet here; what they leave alone is sent as ActionsFor decides
		case ours:
			return s.guards.sendEarly(p, out)
		}
	}
	return s.packet(at, &p.Headers, p.Data, p.At)
}

// packet handles a packet that a switch sent to the controller.
func (s *packetHandler) packet(at network.PortRef, h *packet.Headers, data []byte, arrived time.Time) network.Verdict {
	if isServerMessage(h) {
		return s.guards.handleServerMessage(at, h, arrived)
	}
	arp := h.Has(packet.ARP)
	if !arp && (!h.Has(packet.IPv4|packet.UDP) || h.DstPort != dhcpServerPort || h.IsFragment()) || h.VLANID != 0 || h.VLANTags > 1 {
		return network.Continue
	}
	v := s.view.Load()
	if v == nil || !s.net.Topology().IsEdge(at) {
		return network.Continue
	}
	if arp {
		s.heardAt(at, arrived)
		return s.guards.handleARP(v, at, h, arrived)
	}
	if _, border := v.borders[at]; border {
		return network.Continue
	}
	end := min(h.End, len(data))
	if h.Payload > end {
		return network.Continue
	}
	return s.dhcpIn(v, at, h.EthSrc, data[h.Payload:end], arrived)
}

// dhcpIn queues a DHCP message of a device.
func (s *packetHandler) dhcpIn(v *view, at network.PortRef, src openflow.MAC, message []byte, arrived time.Time) network.Verdict {
	if len(message) < dhcpOptions || message[0] != 1 || message[2] != 6 || src.IsMulticast() {
		return network.Continue
	}
	chaddr := openflow.MAC(message[dhcpChaddr : dhcpChaddr+6])
	d, key := s.whose(src, chaddr)
	if d.ID == "" && !v.unknown {
		return network.Continue
	}
	if s.guards.flooding(d, at, arrived) {
		return network.Stop
	}
	copied := slices.Clone(message)
	err := s.queue.Add(key, func(ctx context.Context) {
		s.handleDHCP(ctx, incoming{at: at, src: src, chaddr: chaddr, message: copied, arrived: arrived})
	})
	if err != nil {
		s.metrics.dropped.WithLabelValues("waiting").Inc()
	}
	return network.Stop
}

// whose returns the device that a message belongs to, if it is known, and the queue key of its
// work: the name that the device has, or will get if it is learned.
func (s *packetHandler) whose(src, chaddr openflow.MAC) (registry.Device, string) {
	for _, m := range []openflow.MAC{src, chaddr} {
		if d, ok := s.registry.DeviceByMAC(m); ok {
			return d, d.ID
		}
	}
	return registry.Device{}, "mac-" + strings.ReplaceAll(chaddr.String(), ":", "")
}

// followInterval is the shortest time between two attempts to follow a device by its packets.
const followInterval = time.Second

// followPacket moves a device to the port where one of its packets has arrived, as if the device
// had asked for its address there. Some DHCP clients do not watch their link and would send
// nothing before their lease is to be renewed.
//
// A packet is weaker evidence than a request. It counts only if the port where the device was has
// lost its link, if the packet has the MAC address that the device used there, and if the device
// may move there by an unsigned request. The service then makes a request from the packet, which has
// to pass the same checks as a received one.
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
		return false // a packet has no signature, which this device needs to move
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

// heardAt records that a host at a port was heard, if none has been since the port came up.
func (s *packetHandler) heardAt(at network.PortRef, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, waiting := s.ports[at]; waiting && a.heard.IsZero() {
		a.heard = now
		s.ports[at] = a
	}
}
