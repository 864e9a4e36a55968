package agent

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEndHostsNeverSeeAFalseEnd checks that from its beginning, an end host's connection is reset
// if the agent dies. An agent that is killed before it has accepted one must not end it as if by
// FIN.
func TestEndHostsNeverSeeAFalseEnd(t *testing.T) {
	const congestion = "reno" // every kernel permits it, also without privileges
	here := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	ln, err := listenFor(t.Context(), here, congestion)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	r, err := reserve(here, congestion)
	if err != nil {
		t.Fatal(err)
	}
	dialled, err := r.dial(t.Context(), ln.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	accepted, err := ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	for name, c := range map[string]net.Conn{"accepted": accepted, "dialled": dialled} {
		err := onSocket(c, func(fd int) error {
			// The structure's first field, an int, is whether the socket lingers.
			lingers, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_LINGER)
			if err == nil && lingers == 0 {
				t.Errorf("the %s connection would end with FIN", name)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestPortInTimeWait checks that a port can be used for another connection to the same server while
// the last one is in TIME_WAIT.
func TestPortInTimeWait(t *testing.T) {
	here := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	server, err := listenFor(t.Context(), here, "reno")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	free, err := reserve(here, "reno")
	if err != nil {
		t.Fatal(err)
	}
	free.close()
	for range 3 {
		r, err := reserve(netip.AddrPortFrom(here.Addr(), free.port), "reno")
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.dial(t.Context(), server.Addr().(*net.TCPAddr).AddrPort())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := server.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		for _, end := range []*net.TCPConn{c, accepted} { // this end first
			if err := onSocket(end, func(fd int) error { return setLinger(fd, false) }); err != nil {
				t.Error(err)
			}
			if err := end.CloseWrite(); err != nil {
				t.Error(err)
			}
		}
		for _, end := range []*net.TCPConn{c, accepted} {
			if b, err := io.ReadAll(end); err != nil || len(b) > 0 {
				t.Errorf("read %q: %v", b, err)
			}
			end.Close()
		}
	}
}
