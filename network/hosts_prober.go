package network

import (
	"log/slog"
	"net/netip"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// probeMAC is the locally administered address that the controller's probes come from. It belongs
// to no host; packets sent to it end at the controller.
var probeMAC = openflow.MAC{0x02, 0x51, 0x1c, 0, 0, 0x01}

// probeAddr6 is the link-local address that belongs to probeMAC.
var probeAddr6 = netip.MustParseAddr("fe80::51:1cff:fe00:1")

// hostProber probes hosts for their addresses, by ARP and neighbour discovery.
type hostProber struct {
	switches *registry
	links    *discovery.Discovery
	hosts    *hosts.Table
	log      *slog.Logger
}

// probeKnownPort probes a host at the port behind which it is known.
func (q *hostProber) probeKnownPort(x hosts.Question) {
	for _, a := range x.Ask {
		q.probe(x.Host, a)
	}
}

// probe probes a host for one of its addresses, at the port behind which it is known.
func (q *hostProber) probe(h Host, a netip.Addr) {
	s, ok := q.switches.get(h.At.Switch)
	if !ok {
		return
	}
	var frame []byte
	if a.Is4() {
		frame = packet.AppendARP(nil, packet.Frame{Dst: h.MAC, Src: probeMAC, VLAN: h.VLAN},
			packet.ARPMessage{Op: packet.ARPRequest, SenderMAC: probeMAC, Sender: netip.IPv4Unspecified(), Target: a})
	} else {
		frame = packet.AppendNeighborSolicitation(nil, probeMAC, probeAddr6, a, h.VLAN)
		copy(frame, h.MAC[:]) // unicast, since no other host needs to receive it
	}
	if err := s.PacketOut(openflow.PortController, []openflow.Action{openflow.Output(h.At.Port)}, frame); err != nil {
		s.logLimiter.Warn(q.log, "probing a known host", "port", h.At, "address", a, "error", err)
	}
}

// probeAllPorts probes for an address at every edge port: untagged, and in each VLAN in which
// hosts were seen behind the port.
func (q *hostProber) probeAllPorts(a netip.Addr) {
	for s, actions := range q.edgeOutputs() {
		q.send(s, a, 0, actions)
	}
	for vlan, towards := range q.taggedOutputs() {
		for s, actions := range towards {
			q.send(s, a, vlan, actions)
		}
	}
}

// outputs holds the actions that send a packet out of some ports of each switch.
type outputs map[*Switch][]openflow.Action

// edgeOutputs returns the actions that send a packet out of every edge port.
func (q *hostProber) edgeOutputs() outputs {
	out := outputs{}
	for _, s := range q.switches.list() {
		for _, p := range q.links.EdgePorts(s.dpid) {
			out[s] = append(out[s], openflow.Output(p))
		}
	}
	return out
}

// taggedOutputs returns for each VLAN the actions that send a packet out of the ports with hosts
// in it.
func (q *hostProber) taggedOutputs() map[uint16]outputs {
	type place struct {
		at   PortRef
		vlan uint16
	}
	all, seen := map[uint16]outputs{}, map[place]bool{}
	for _, h := range q.hosts.All() {
		p := place{h.At, h.VLAN}
		s, ok := q.switches.get(h.At.Switch)
		if h.VLAN == 0 || seen[p] || !ok {
			continue
		}
		seen[p] = true
		if all[h.VLAN] == nil {
			all[h.VLAN] = outputs{}
		}
		all[h.VLAN][s] = append(all[h.VLAN][s], openflow.Output(h.At.Port))
	}
	return all
}

// send sends one probe.
func (q *hostProber) send(s *Switch, a netip.Addr, vlan uint16, actions []openflow.Action) {
	var frame []byte
	if a.Is4() {
		frame = packet.AppendARPRequest(nil, probeMAC, netip.IPv4Unspecified(), a, vlan)
	} else {
		frame = packet.AppendNeighborSolicitation(nil, probeMAC, probeAddr6, a, vlan)
	}
	if err := s.PacketOut(openflow.PortController, actions, frame); err != nil {
		s.logLimiter.Warn(q.log, "probing for an address", "switch", s.dpid, "address", a, "error", err)
	}
}
