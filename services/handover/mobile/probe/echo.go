package probe

import (
	"encoding/binary"
	"net/netip"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// ICMP (RFC 792) and IPv4.
const (
	echoReply   = 0
	echoRequest = 8
	icmpHeader  = 8
	ipHeader    = 20
)

// appendEcho appends the frame of an ICMP echo request.
func appendEcho(b []byte, dst, src openflow.MAC, from, to netip.Addr, id, number uint16) []byte {
	b = append(b, dst[:]...)
	b = append(b, src[:]...)
	b = append(b, 0x08, 0x00)
	ip := len(b)
	b = append(b, 0x45, 0, 0, ipHeader+icmpHeader, 0, 0, 0x40, 0, 64, packet.ProtoICMP, 0, 0)
	b = append(b, from.AsSlice()...)
	b = append(b, to.AsSlice()...)
	binary.BigEndian.PutUint16(b[ip+10:], packet.Checksum(packet.Sum(b[ip:], 0)))
	icmp := len(b)
	b = append(b, echoRequest, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, id)
	b = binary.BigEndian.AppendUint16(b, number)
	binary.BigEndian.PutUint16(b[icmp+2:], packet.Checksum(packet.Sum(b[icmp:], 0)))
	return b
}

// echoOf returns the identifier and the number of the answer to an echo request.
func echoOf(frame []byte, h *packet.Headers) (id, number uint16, ok bool) {
	if !h.Has(packet.ICMPv4) || h.ICMPType != echoReply || h.IsFragment() || len(frame) < h.L4+icmpHeader {
		return 0, 0, false
	}
	return binary.BigEndian.Uint16(frame[h.L4+4:]), binary.BigEndian.Uint16(frame[h.L4+6:]), true
}
