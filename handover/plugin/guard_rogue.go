package plugin

import (
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// keyRogue begins the keys of the rules against DHCP servers of others in the ledger.
const keyRogue = "rogue/"

// newRogues looks for ports from which somebody answers DHCP.
func newRogues() *offence {
	return &offence{
		key: keyRogue, event: "rogue-dhcp", ports: map[network.PortRef]*offender{},
		begins: "a host answers DHCP at a port where no server is; it is dropped", ends: "DHCP is no longer answered at a port where no server is", does: "answers DHCP as",
		rules: func(_ *view, at network.PortRef) []network.Rule {
			return []network.Rule{{Match: fromServers(openflow.InPort(at.Port))}}
		},
	}
}

// fromServers matches what DHCP servers say to clients.
func fromServers(more ...openflow.OXM) openflow.Match {
	return openflow.MustMatch(append(more, openflow.EthType(packet.TypeIPv4), openflow.IPProto(packet.ProtoUDP),
		openflow.UDPSrc(dhcpServerPort), openflow.UDPDst(dhcpClientPort))...)
}

// isAnswer says whether a packet is what fromServers matches, or the first fragment of
// such a packet, which it does not: without that, the others are worth nothing.
func isAnswer(h *packet.Headers) bool {
	return h.Has(packet.IPv4|packet.UDP) && h.SrcPort == dhcpServerPort && h.DstPort == dhcpClientPort
}

// answered decides about what a DHCP server says. It goes on from where servers may
// be: behind a border port that is no peering, or a port of role uplink.
func (s *guards) answered(at network.PortRef, h *packet.Headers, arrived time.Time) network.Verdict {
	v := s.view.Load()
	if v == nil || len(v.borders) == 0 || h.VLANID != 0 || h.VLANTags > 1 || !s.net.Topology().IsEdge(at) {
		return network.Continue
	}
	if border, is := v.borders[at]; is && border.Peer == "" || s.net.PortRole(at) == network.PortUplink {
		return network.Continue
	}
	return s.stop(s.rogues, at, h, arrived)
}
