package network

import "github.com/sluice-net/sluice/openflow"

// hostHandler learns hosts.
type hostHandler struct{ n *Network }

func (hostHandler) Name() string { return "hosts" }

func (h hostHandler) HandlePacketIn(p *PacketIn) Verdict {
	p.claims = nil
	if p.InPort > openflow.PortMax {
		return Continue
	}
	at := PortRef{Switch: p.Switch.dpid, Port: p.InPort}
	if p.Headers.EthDst == probeMAC {
		h.n.doctor.examining.answered(&p.Headers)
		h.n.hostChanges(h.n.hosts.Heard(&p.Headers, at, p.At))
	}
	p.claims = h.n.hosts.Learn(&p.Headers, at, p.At)
	h.n.hostChanges(p.claims)
	return Continue
}
