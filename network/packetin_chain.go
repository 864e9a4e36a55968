package network

import (
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// Verdict is a handler's decision about a packet-in.
type Verdict uint8

const (
	// Continue hands the packet to the next handler of the chain.
	Continue Verdict = iota
	// Stop ends the chain: the handler has dealt with the packet.
	Stop
)

// Handler is one link of the packet-in chain. HandlePacketIn runs on the
// switch's own goroutine: it must not block, and must not keep p or p.Data.
type Handler interface {
	// Name is used in logs, metrics and traces.
	Name() string
	HandlePacketIn(p *PacketIn) Verdict
}

// PacketIn is a packet that a switch sent up. It is valid only during the call.
type PacketIn struct {
	Switch *Switch
	InPort uint32
	Reason uint8
	Table  uint8
	Cookie uint64
	// Data is the packet, as long as the switch sent it. It is overwritten after
	// the call; Hold copies it.
	Data    []byte
	Headers packet.Headers
	At      time.Time

	buffer uint32         // the switch's own copy of the packet, if it keeps one
	claims []hosts.Change // what it has changed about hosts, or was to
}

// Send sends a frame out of a port of any switch, with all else that the packets cause which have come from
// this switch together: it takes no write of its own. It is for handlers, during the call.
func (p *PacketIn) Send(at PortRef, frame []byte) error {
	to := p.Switch
	if at.Switch != to.dpid {
		var err error
		if to, err = p.Switch.n.switches.mustBeUp(at.Switch); err != nil {
			return err
		}
	}
	err := to.ch.queueOutput(openflow.PortController, at.Port, frame)
	p.Switch.flushLater(to.ch.out)
	return err
}

// packetIn takes a packet through the chain. Nothing here allocates.
func (s *Switch) packetIn(m []byte) {
	if !s.up.Load() {
		s.counters.packetInsDropped.Add(1)
		return
	}
	if err := s.in.Decode(m); err != nil {
		s.malformed(err)
		return
	}
	p := &s.pkt
	p.Switch, p.InPort, p.Reason, p.Table = s, s.in.InPort, s.in.Reason, s.in.Table
	p.Cookie, p.Data, p.buffer = s.in.Cookie, s.in.Data, s.in.BufferID
	_ = p.Headers.Parse(p.Data) // what could be read is what counts
	s.counters.packetIns[kindOf(&p.Headers)].Add(1)
	if !p.Headers.Has(packet.Ethernet) {
		return
	}
	for _, h := range s.n.chain {
		if h.HandlePacketIn(p) == Stop {
			return
		}
	}
}

// PacketKind says what kind of packet a switch has sent up.
type PacketKind uint8

// The kinds that are told apart: whoever wonders why a controller is busy asks for them first.
const (
	KindOther PacketKind = iota
	KindLLDP
	KindARP
	KindND
	KindTCP
	KindUDP
	PacketKinds // how many there are
)

// String is the kind as metrics and the API name it.
func (k PacketKind) String() string {
	return [PacketKinds]string{"other", "lldp", "arp", "nd", "tcp", "udp"}[k]
}

// kindOf tells the kind of a packet by its layers.
func kindOf(h *packet.Headers) PacketKind {
	switch {
	case h.Has(packet.LLDP):
		return KindLLDP
	case h.Has(packet.ARP):
		return KindARP
	case h.Has(packet.ND):
		return KindND
	case h.Has(packet.TCP):
		return KindTCP
	case h.Has(packet.UDP):
		return KindUDP
	}
	return KindOther
}
