package handover

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// serverMAC is the locally administered address of the DHCP server, which also sends the service's
// ARP requests. It belongs to no host.
var serverMAC = openflow.MAC{0x02, 0x51, 0x1c, 0, 0, 0x02}

// handleARP answers ARP for gateways, for the DHCP server, and for devices wherever they are.
// Packets about other addresses are left to the chain.
func (s *guards) handleARP(v *view, at network.PortRef, h *packet.Headers, arrived time.Time) network.Verdict {
	border, isBorder := v.borders[at]
	if isBorder && !h.Src.IsUnspecified() && s.gateways.learn(h.Src, h.ARPSHA, border.Peer) {
		s.wake() // the switches' answers have to be updated
	}
	switch {
	case !isBorder && s.isForged(v, h):
		return s.dropViolation(s.forgers, at, h, arrived)
	case isBorder && isForeignGateway(v, border, h.Src):
		s.metrics.forged.WithLabelValues("controller").Inc()
		return network.Stop
	}
	if !isBorder {
		s.noteUnreachable(v, at, h, arrived)
	}
	if h.ARPOp == packet.ARPReply {
		return s.handleARPReply(at, isBorder, h, arrived)
	}
	if h.ARPOp != packet.ARPRequest {
		return network.Continue
	}
	asker, known := s.registry.DeviceByMAC(h.EthSrc)
	if !isBorder && known && h.Src == h.Dst {
		return network.Stop // an announcement: DHCP has already told those who need to know
	}
	mac, target, ours := s.resolve(v, asker.ID, h.Dst)
	switch {
	case !isBorder && !ours && known && s.askBehindBorder(v, asker, h):
		return network.Stop
	case !ours, isBorder && !mayAsk(v, border, target, h.Dst):
		return network.Continue
	}
	if target == targetGateway && !isBorder && h.Src.IsUnspecified() && !s.hasPath(at) {
		return network.Stop // a device asks whether the gateway is reachable from its place; without a path to the border ports it is not
	}
	if mac.IsZero() {
		return network.Stop // the device's own address, or a gateway that is still being looked up
	}
	if err := s.net.Send(at, packet.AppendARPReply(nil, h, mac)); err == nil {
		s.metrics.arp.WithLabelValues(target).Inc()
	}
	return network.Stop
}

// isForeignGateway reports whether an address is that of a gateway to which another border port
// leads.
func isForeignGateway(v *view, border Border, ip netip.Addr) bool {
	g, gateway := v.gateways[ip]
	return gateway && g.peer != border.Peer
}

// mayAsk reports whether a question that came in by a border port is answered. Everybody may ask
// for devices, and another domain also for our gateways.
func mayAsk(v *view, border Border, target string, ip netip.Addr) bool {
	g := v.gateways[ip]
	return target == targetDevice || target == targetGateway && border.Peer != "" && g.peer == ""
}

// Kinds of addresses that are asked for.
const (
	targetGateway = "gateway"
	targetServer  = "server"
	targetDevice  = "device"
)

// resolve returns the MAC address that answers for an address to the given asker. A zero MAC
// address with ours set means that nobody is to answer.
func (s *guards) resolve(v *view, asker string, ip netip.Addr) (mac openflow.MAC, target string, ours bool) {
	if g, ok := v.gateways[ip]; ok {
		if g.mac.IsZero() {
			g.mac = s.gateways.lookup(ip)
		}
		return g.mac, targetGateway, true
	}
	if v.servers[ip] {
		return serverMAC, targetServer, true
	}
	d, ok := s.leaseHolder(ip)
	if !ok {
		return openflow.MAC{}, "", false
	}
	if d.ID == asker {
		return openflow.MAC{}, targetDevice, true
	}
	return d.HomeMAC(), targetDevice, true
}

// handleARPReply handles replies to the service's own questions, and drops those about devices:
// these come from the controller alone.
func (s *guards) handleARPReply(at network.PortRef, isBorder bool, h *packet.Headers, arrived time.Time) network.Verdict {
	if h.EthDst == serverMAC {
		s.pings.answered(at, h.Src, arrived)
		return network.Stop
	}
	if _, device := s.leaseHolder(h.Src); device || isBorder && s.relayAnswer(h) {
		return network.Stop
	}
	return network.Continue
}
