package packet

import "net/netip"

// UDPDatagram is a UDP datagram with its addresses. Both are IPv4 or both IPv6.
type UDPDatagram struct {
	Src, Dst netip.AddrPort
	Payload  []byte
}

// AppendUDP appends a UDP datagram in an IP packet.
func AppendUDP(b []byte, f Frame, d UDPDatagram) []byte {
	src, dst := addresses(d.Src, d.Dst)
	size := 8 + len(d.Payload)
	if src.Is4() {
		b = f.appendTo(b, TypeIPv4)
		b = appendIPv4(b, src, dst, ProtoUDP, size)
	} else {
		b = f.appendTo(b, TypeIPv6)
		b = appendIPv6(b, src, dst, ProtoUDP, 64, size)
	}
	at := len(b)
	b = be.AppendUint16(b, d.Src.Port())
	b = be.AppendUint16(b, d.Dst.Port())
	b = be.AppendUint16(b, uint16(size))
	b = append(b, 0, 0)
	b = append(b, d.Payload...)
	check := Checksum(Sum(b[at:], pseudoHeader(src, dst, ProtoUDP, size)))
	if check == 0 { // zero means that there is no checksum
		check = 0xffff
	}
	be.PutUint16(b[at+6:], check)
	return b
}
