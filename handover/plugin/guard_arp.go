package plugin

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// serverMAC is the locally administered address that the DHCP server has, and
// from which the service asks. It belongs to no host.
var serverMAC = openflow.MAC{0x02, 0x51, 0x1c, 0, 0, 0x02}

// arp answers for gateways, for the DHCP server, and for devices wherever they
// are. What is about other addresses is left to the chain.
func (s *guards) arp(v *view, at network.PortRef, h *packet.Headers, arrived time.Time) network.Verdict {
	border, isBorder := v.borders[at]
	if isBorder && !h.Src.IsUnspecified() && s.gateways.heard(h.Src, h.ARPSHA, border.Peer) {
		s.wake() // switches are to answer so
	}
	switch {
	case !isBorder && s.forged(v, h):
		return s.stop(s.forgers, at, h, arrived)
	case isBorder && elsewhere(v, border, h.Src):
		s.metrics.forged.WithLabelValues("controller").Inc()
		return network.Stop
	}
	if !isBorder {
		s.stray(v, at, h, arrived)
	}
	if h.ARPOp == packet.ARPReply {
		return s.arpReply(at, isBorder, h, arrived)
	}
	if h.ARPOp != packet.ARPRequest {
		return network.Continue
	}
	asker, known := s.registry.DeviceByMAC(h.EthSrc)
	if !isBorder && known && h.Src == h.Dst {
		return network.Stop // an announcement: who needs to know has been told by DHCP
	}
	mac, target, ours := s.resolve(v, asker.ID, h.Dst)
	switch {
	case !isBorder && !ours && known && s.askBeyond(v, asker, h):
		return network.Stop
	case !ours, isBorder && !mayAsk(v, border, target, h.Dst):
		return network.Continue
	}
	if target == targetGateway && !isBorder && h.Src.IsUnspecified() && !s.led(at) {
		return network.Stop // a device asks whether the place is alive: without a way to the border ports it is not
	}
	if mac.IsZero() {
		return network.Stop // the device's own address, or a gateway that is being looked for
	}
	if err := s.net.Send(at, packet.AppendARPReply(nil, h, mac)); err == nil {
		s.metrics.arp.WithLabelValues(target).Inc()
	}
	return network.Stop
}

// elsewhere says whether an address is that of a gateway to which another border port leads.
func elsewhere(v *view, border Border, ip netip.Addr) bool {
	g, gateway := v.gateways[ip]
	return gateway && g.peer != border.Peer
}

// mayAsk says whether a question that came in by a border port is answered: everybody
// may ask for devices, another domain also for our gateways.
func mayAsk(v *view, border Border, target string, ip netip.Addr) bool {
	g := v.gateways[ip]
	return target == targetDevice || target == targetGateway && border.Peer != "" && g.peer == ""
}

// Whose address was asked for.
const (
	targetGateway = "gateway"
	targetServer  = "server"
	targetDevice  = "device"
)

// resolve finds the MAC address that answers for an address to one who asks. A
// zero one means that there is to be no answer, from anybody.
func (s *guards) resolve(v *view, asker string, ip netip.Addr) (mac openflow.MAC, target string, ours bool) {
	if g, ok := v.gateways[ip]; ok {
		if g.mac.IsZero() {
			g.mac = s.gateways.find(ip)
		}
		return g.mac, targetGateway, true
	}
	if v.servers[ip] {
		return serverMAC, targetServer, true
	}
	d, ok := s.leased(ip)
	if !ok {
		return openflow.MAC{}, "", false
	}
	if d.ID == asker {
		return openflow.MAC{}, targetDevice, true
	}
	return d.HomeMAC(), targetDevice, true
}

// arpReply takes the answers to questions that the service has asked, and ends
// those about devices: these come from the controller alone.
func (s *guards) arpReply(at network.PortRef, isBorder bool, h *packet.Headers, arrived time.Time) network.Verdict {
	if h.EthDst == serverMAC {
		s.pings.heard(at, h.Src, arrived)
		return network.Stop
	}
	if _, device := s.leased(h.Src); device || isBorder && s.answerBeyond(h) {
		return network.Stop
	}
	return network.Continue
}
