package integration

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

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

// sendSYN sends a first packet out of the client's host of which the host itself
// knows nothing.
func (w *world) sendSYN(from, to netip.AddrPort) {
	w.t.Helper()
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: to.Addr().As4()}
	}
	err := w.lab.Host("client").Do(func() error {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, synPacket(from, to), 0, sa)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
