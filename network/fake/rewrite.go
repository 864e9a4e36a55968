package fake

import (
	"bytes"
	"encoding/binary"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// rewriteFrame returns a copy of the frame with the addresses and ports of p, the packet as it
// leaves. If these differ from the frame's, the checksums are computed again. Tags stay as they are.
func rewriteFrame(frame []byte, p Packet) []byte {
	h, err := packet.Parse(frame)
	if err != nil {
		return frame
	}
	out := bytes.Clone(frame)
	put := func(f openflow.Field, at, size int) {
		if o, ok := p.Get(f); ok {
			copy(out[at:at+size], o.Value[:])
		}
	}
	put(openflow.FieldEthDst, 0, 6)
	put(openflow.FieldEthSrc, 6, 6)
	if !h.Has(packet.IPv4) {
		return out
	}
	put(openflow.FieldIPv4Src, h.L3+12, 4)
	put(openflow.FieldIPv4Dst, h.L3+16, 4)
	sumAt := 0
	switch {
	case h.Has(packet.TCP):
		put(openflow.FieldTCPSrc, h.L4, 2)
		put(openflow.FieldTCPDst, h.L4+2, 2)
		sumAt = 16
	case h.Has(packet.UDP):
		put(openflow.FieldUDPSrc, h.L4, 2)
		put(openflow.FieldUDPDst, h.L4+2, 2)
		sumAt = 6
	}
	if bytes.Equal(out[h.L3:], frame[h.L3:]) || h.End > len(out) {
		return out
	}
	ip, body := out[h.L3:h.L4], out[h.L4:h.End]
	writeChecksum(ip, 10, 0)
	if sumAt > 0 {
		writeChecksum(body, sumAt, packet.Sum(ip[12:20], uint32(h.Proto)+uint32(len(body))))
	}
	return out
}

// writeChecksum writes the Internet checksum of b into b.
func writeChecksum(b []byte, at int, start uint32) {
	binary.BigEndian.PutUint16(b[at:], 0)
	binary.BigEndian.PutUint16(b[at:], packet.Checksum(packet.Sum(b, start)))
}
