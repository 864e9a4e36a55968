package handover

import (
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// keyRogue begins the ledger keys of the rules against other DHCP servers.
const keyRogue = "rogue/"

// newRogues returns the violation of ports where a host answers DHCP.
func newRogues() *violation {
	return &violation{
		key: keyRogue, event: "rogue-dhcp", ports: map[network.PortRef]*violator{},
		begins: "a host answers DHCP at a port where no server is; it is dropped", ends: "DHCP is no longer answered at a port where no server is", does: "answers DHCP as",
		rules: func(_ *view, at network.PortRef) []network.Rule {
			return []network.Rule{{Match: fromServers(openflow.InPort(at.Port))}}
		},
	}
}

// fromServers returns a match of what DHCP servers send to clients.
func fromServers(more ...openflow.OXM) openflow.Match {
	return openflow.MustMatch(append(more, openflow.EthType(packet.TypeIPv4), openflow.IPProto(packet.ProtoUDP),
		openflow.UDPSrc(dhcpServerPort), openflow.UDPDst(dhcpClientPort))...)
}

// isServerMessage reports whether a packet is what fromServers matches, or the first fragment of
// such a packet. fromServers does not match fragments; without the first, the others are
// worthless.
func isServerMessage(h *packet.Headers) bool {
	return h.Has(packet.IPv4|packet.UDP) && h.SrcPort == dhcpServerPort && h.DstPort == dhcpClientPort
}

// handleServerMessage handles a DHCP server's message. It passes from where servers may be: behind
// a border port that is no peering, or at a port of role uplink.
func (s *guards) handleServerMessage(at network.PortRef, h *packet.Headers, arrived time.Time) network.Verdict {
	v := s.view.Load()
	if v == nil || len(v.borders) == 0 || h.VLANID != 0 || h.VLANTags > 1 || !s.net.Topology().IsEdge(at) {
		return network.Continue
	}
	if border, ok := v.borders[at]; ok && border.Peer == "" || s.net.PortRole(at) == network.PortUplink {
		return network.Continue
	}
	return s.dropViolation(s.rogues, at, h, arrived)
}
