package network

import "github.com/sluice-net/sluice/network/packet"

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
