package integration

import (
	"encoding/binary"
	"net/netip"

	"github.com/sluice-net/sluice/network/packet"
)

// etherHeader is the size of the header that raw IP sockets do not want.
const etherHeader = 14

// synPacket is the IPv4 packet of a connection's first segment.
func synPacket(from, to netip.AddrPort) []byte {
	frame := packet.AppendTCP(nil, packet.Frame{}, packet.TCPSegment{
		Src: from, Dst: to, Seq: binary.BigEndian.Uint32(from.Addr().AsSlice()), Flags: packet.SYN, Window: 65535,
	})
	return frame[etherHeader:]
}
