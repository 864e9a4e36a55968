package network

import (
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/openflow"
)

// learner learns hosts from the packets that switches send to the controller.
type learner struct {
	hosts     *hosts.Table
	onChanges func([]hosts.Change)
	// probes receives the answers to the controller's probes.
	probes *probeReceiver
}

// Name implements Handler.
func (*learner) Name() string { return "hosts" }

// HandlePacketIn implements Handler.
func (x *learner) HandlePacketIn(p *PacketIn) Verdict {
	p.claims = nil
	if p.InPort > openflow.PortMax {
		return Continue
	}
	at := PortRef{Switch: p.Switch.dpid, Port: p.InPort}
	if p.Headers.EthDst == probeMAC {
		x.probes.receiveAnswer(&p.Headers)
		x.onChanges(x.hosts.HandleAnswer(&p.Headers, at, p.At))
	}
	p.claims = x.hosts.Learn(&p.Headers, at, p.At)
	x.onChanges(p.claims)
	return Continue
}
