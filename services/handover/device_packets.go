package handover

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/dhcp"
	"github.com/sluice-net/sluice/services/handover/registry"
)

const (
	dhcpClientPort, dhcpServerPort = 68, 67
	// Offsets into a DHCP message, and its shortest length.
	dhcpChaddr  = 28
	dhcpOptions = 240
)

// packetHandler handles the packets of devices that switches send to the controller, above all
// DHCP.
type packetHandler struct {
	*core
	placement         *placement
	guards            *guards
	dhcp              *dhcp.Server
	awaitingNeighbour pendingMessages // messages that wait for a neighbour's answer
	awaitingPath      pendingMessages // requests that wait for a path

	// ports holds the ports that came up and have had no DHCP message since. The lock of core
	// guards it.
	ports map[network.PortRef]association
}

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
		out, ours := s.guards.led(at, &p.Headers)
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
