package agent

import (
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCongestionBeforeHandshake checks that the congestion control is set before the handshake. If
// bbr is the system's default, a socket that gets another one later stays paced.
func TestCongestionBeforeHandshake(t *testing.T) {
	const other = "reno" // every kernel permits this one
	local := netip.MustParseAddr("127.0.0.1")
	r, err := reserve(netip.AddrPortFrom(local, 0), other)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	forClient, err := listenFor(t.Context(), netip.AddrPortFrom(local, 0), other)
	if err != nil {
		t.Fatal(err)
	}
	defer forClient.Close()
	transport := &tcpTransport{buffer: 1 << 20, start: other}
	forPeer, err := transport.Listen(t.Context(), netip.AddrPortFrom(local, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer forPeer.Close()
	toPeer, err := transport.Dial(t.Context(), local, netip.MustParseAddrPort(forPeer.Addr().String()), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer toPeer.Close()
	accepted, err := forPeer.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	for name, socket := range map[string]syscall.Conn{
		"to the server": r.file, "for the client": forClient, "for the peer": forPeer.(syscall.Conn),
		"to the peer": toPeer.(syscall.Conn), "of the peer": accepted.(syscall.Conn),
	} {
		rc, err := socket.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		err = rc.Control(func(fd uintptr) {
			if got, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); got != other || err != nil {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
