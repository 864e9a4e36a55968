package plugin

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/handover/dhcp"
	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

const (
	dhcpClientPort, dhcpServerPort = 68, 67
	// Offsets into a DHCP message, and its shortest length.
	dhcpChaddr  = 28
	dhcpOptions = 240
)

// intake takes what devices say, and what it means of where they are: DHCP above all.
type intake struct {
	*guards
	dhcp  *dhcp.Server
	held  heldBack // for neighbours
	early heldBack // for a way

	ports map[network.PortRef]association // of ports that came up, until a DHCP message; the lock of core guards it
}

// ownerHash tells the service's rules from others by the cookie of what they send up.
var ownerHash = rule.OwnerHash(Name)

// HandlePacketIn takes DHCP and ARP of devices out of the chain, and what others say
// of either. It runs on the
// switch's goroutine and never waits.
func (s *intake) HandlePacketIn(p *network.PacketIn) network.Verdict {
	at := network.PortRef{Switch: p.Switch.DPID(), Port: p.InPort}
	if rule.Cookie(p.Cookie).Owner() == ownerHash && s.spoofed(&p.Headers) {
		v := s.fromElsewhere(at, p.Headers.Src, p.Resubmit)
		s.followPacket(at, &p.Headers, p.At)
		return v
	}
	if isEarly(p) {
		out, ours := s.Led(at, &p.Headers)
		switch {
		case ours && len(out) > 0 && s.border(at.Switch):
			return network.Continue // others are asked here; what they leave alone goes as Led says
		case ours:
			return s.sendEarly(p, out)
		}
	}
	return s.packet(at, &p.Headers, p.Data, p.At)
}

// packet decides about a packet that a switch sent up.
func (s *intake) packet(at network.PortRef, h *packet.Headers, data []byte, arrived time.Time) network.Verdict {
	if isAnswer(h) {
		return s.answered(at, h, arrived)
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
		return s.arp(v, at, h, arrived)
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

// dhcpIn queues a DHCP message of a device as work for it.
func (s *intake) dhcpIn(v *view, at network.PortRef, src openflow.MAC, message []byte, arrived time.Time) network.Verdict {
	if len(message) < dhcpOptions || message[0] != 1 || message[2] != 6 || src.IsMulticast() {
		return network.Continue
	}
	chaddr := openflow.MAC(message[dhcpChaddr : dhcpChaddr+6])
	d, key := s.whose(src, chaddr)
	if d.ID == "" && !v.unknown {
		return network.Continue
	}
	if s.flooding(d, at, arrived) {
		return network.Stop
	}
	copied := slices.Clone(message)
	err := s.queue.Add(key, func(ctx context.Context) {
		s.dhcpMessage(ctx, incoming{at: at, src: src, chaddr: chaddr, message: copied, arrived: arrived})
	})
	if err != nil {
		s.metrics.dropped.WithLabelValues("waiting").Inc()
	}
	return network.Stop
}

// whose finds whose message it is, if that is known, and the key of work for it: the name
// that the device has, or will have if it is learned.
func (s *intake) whose(src, chaddr openflow.MAC) (registry.Device, string) {
	for _, m := range []openflow.MAC{src, chaddr} {
		if d, ok := s.registry.DeviceByMAC(m); ok {
			return d, d.ID
		}
	}
	return registry.Device{}, "mac-" + strings.ReplaceAll(chaddr.String(), ":", "")
}
