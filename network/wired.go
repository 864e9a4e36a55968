package network

import (
	"errors"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/linkprobe"
	"github.com/sluice-net/sluice/openflow"
)

// linkHandler is discovery in the chain.
type linkHandler struct{ n *Network }

func (linkHandler) Name() string { return "discovery" }

func (h linkHandler) HandlePacketIn(p *PacketIn) Verdict {
	if linkprobe.Is(p.Headers.EthSrc) {
		h.n.examining.receive(p)
		return Stop
	}
	if p.Headers.EthType != 0x88cc {
		return Continue
	}
	if p.InPort > openflow.PortMax { // no link and no host is there
		p.Switch.looped(p.Data, p.At)
		return Stop
	}
	at := PortRef{Switch: p.Switch.dpid, Port: p.InPort}
	changes, err := h.n.links.Receive(p.Data, &p.Headers, at, p.At, h.n.control)
	switch {
	case err == nil, err == discovery.ErrForeign: //nolint:errorlint // returned as it is
	case errors.Is(err, discovery.ErrLate):
		p.Switch.limiter.Warn(h.n.log, "a probe came too late to tell of its link", "switch", p.Switch.dpid, "port", p.InPort, "error", err)
	default:
		p.Switch.limiter.Warn(h.n.log, "probe not believed", "switch", p.Switch.dpid, "port", p.InPort, "error", err)
	}
	h.n.linkChanges(changes)
	return Stop
}

// control is what is known of the connection to a switch.
func (n *Network) control(d openflow.DatapathID) discovery.Control {
	if s, ok := n.Switch(d); ok {
		return s.rtt.control()
	}
	return discovery.Control{}
}

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
		h.n.examining.answered(&p.Headers)
		h.n.hostChanges(h.n.hosts.Heard(&p.Headers, at, p.At))
	}
	p.claims = h.n.hosts.Learn(&p.Headers, at, p.At)
	h.n.hostChanges(p.claims)
	return Continue
}
