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
	// Continue passes the packet to the next handler of the chain.
	Continue Verdict = iota
	// Stop ends the chain because the handler has dealt with the packet.
	Stop
)

// Handler is one element of the packet-in chain. HandlePacketIn runs on the switch's own
// goroutine: it must not block, and must not keep p or p.Data.
type Handler interface {
	// Name returns the handler's name in logs, metrics and traces.
	Name() string
	HandlePacketIn(p *PacketIn) Verdict
}

// PacketIn is a packet that a switch has sent to the controller. It is valid only during the call of
// HandlePacketIn.
type PacketIn struct {
	Switch *Switch
	InPort uint32
	Reason uint8
	Table  uint8
	Cookie uint64
	// Data holds as much of the packet as the switch has sent. It is overwritten after the call;
	// Hold copies it.
	Data    []byte
	Headers packet.Headers
	At      time.Time

	buffer uint32         // identifier of the switch's own copy, or openflow.NoBuffer
	claims []hosts.Change // what the packet has changed, or tried to change, in the host table
}

// Send queues a frame to be sent from a port of any switch. The frame is written together with
// everything else that the current batch of input causes. Only handlers may call Send, and only
// during HandlePacketIn.
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

// packetIn passes a packet through the chain. It does not allocate.
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
	_ = p.Headers.Parse(p.Data) // headers that could be parsed are usable even after an error
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

// PacketKind is the kind of a packet that a switch has sent.
type PacketKind uint8

// The kinds that are counted separately. They show what keeps a busy controller occupied.
const (
	KindOther PacketKind = iota
	KindLLDP
	KindARP
	KindND
	KindTCP
	KindUDP
	PacketKinds // number of kinds
)

// String returns the kind's name in metrics and in the API.
func (k PacketKind) String() string {
	return [PacketKinds]string{"other", "lldp", "arp", "nd", "tcp", "udp"}[k]
}

// kindOf returns the kind of a packet from its layers.
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
