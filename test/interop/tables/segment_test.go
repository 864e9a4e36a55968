package tables

import (
	"net/netip"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos"
)

// end is one end of a part of a session.
type end struct {
	at   netip.AddrPort
	mac  openflow.MAC
	vlan uint16 // zero for any
}

// sent says whether a packet is from one end to another.
func sent(h *packet.Headers, from, to end) bool {
	return h.Has(packet.IPv4|packet.TCP) && h.Source() == from.at && h.Destination() == to.at
}

func (e end) tags(h *packet.Headers) bool { return e.vlan == 0 || h.VLANID == e.vlan }

// half is what becomes of a session's segments on one side of it: the end host believes that
// it speaks with the far one, and speaks with the agent.
type half struct {
	host, far, agent end
	path             []network.Hop // from the end host to the agent
	asks             bool          // first packets come to the controller
	onLink           bool
}

func halfOf(s *sos.Side, host, far netip.AddrPort) half {
	return half{
		host: end{host, s.EndMAC, s.EndVLAN}, far: end{at: far, mac: s.FarMAC}, agent: end{netip.AddrPortFrom(s.Agent, s.AgentPort), s.AgentMAC, s.AgentVLAN},
		path: s.Path, asks: s.PuntsSYN, onLink: s.OnLink,
	}
}

// segment is what becomes of a segment of the session at a switch between an end host and its
// agent.
func (c *carrying) segment(at network.PortRef, h *packet.Headers) (copyOut, bool) {
	if !c.session {
		return copyOut{}, false
	}
	l := &c.layout
	for _, x := range []half{halfOf(&l.ClientSide, l.Client, l.Server), halfOf(&l.ServerSide, l.Server, l.Client)} {
		for i, hop := range x.path {
			if hop.Switch != at.Switch {
				continue
			}
			if out, ok := x.pass(i, hop, at.Port, *h); ok {
				return out, true
			}
		}
	}
	return copyOut{}, false
}

// pass is what becomes of a segment at a switch of the way. At the first one the header of
// what the end host sends, and of what it is sent, is changed.
func (x *half) pass(i int, hop network.Hop, in uint32, h packet.Headers) (copyOut, bool) {
	switch {
	case in == hop.In && i == 0 && sent(&h, x.host, x.far) && x.host.tags(&h):
		if x.asks && h.TCPFlags&packet.SYN != 0 {
			return copyOut{}, false
		}
		h.Dst, h.DstPort, h.EthDst = x.agent.at.Addr(), x.agent.at.Port(), x.agent.mac
		retag(&h, x.host.vlan, x.agent.vlan)
	case in == hop.In && i > 0 && sent(&h, x.host, x.agent) && x.agent.tags(&h):
	case in == hop.Out && sent(&h, x.agent, x.host) && x.agent.tags(&h):
		hop.Out = hop.In
		if i == 0 {
			h.Src, h.SrcPort, h.EthSrc = x.far.at.Addr(), x.far.at.Port(), x.far.mac
			if !x.onLink {
				h.EthDst = x.host.mac
			}
			retag(&h, x.agent.vlan, x.host.vlan)
		}
	default:
		return copyOut{}, false
	}
	return copyOut{port: hop.Out, h: h}, true
}

// retag brings a packet from one VLAN into another. A tag that nobody expects stays where
// nothing is to be changed.
func retag(h *packet.Headers, from, to uint16) {
	if from != to {
		tag(h, to)
	}
}
