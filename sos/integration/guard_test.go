package integration

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/network/packet"
)

// TestStrayPacketsOfAgents has an agent's host send segments from the agent's
// address that belong to no session: none of them reaches an end host, while what
// comes from other ports of the host does.
func TestStrayPacketsOfAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosstray", wan), options{})
	w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	w.echo(80) // everybody knows everybody now
	w.eventually("the agents are guarded", func() bool { return strings.Contains(w.flows("s2"), "priority=21000,") })
	agent := w.lab.Host("y").Addr()
	arrived := w.arrivals("server", agent)
	var strays []netip.AddrPort
	for _, port := range []uint16{10240, 16000, 25000, 32767} {
		strays = append(strays, netip.AddrPortFrom(agent, port))
	}
	send := w.rawSender("y")
	for range 3 {
		for _, from := range strays {
			send(synPacket(from, w.serverAddr(80)))
		}
	}
	send(synPacket(netip.AddrPortFrom(agent, 40000), w.serverAddr(80)))
	select {
	case port := <-arrived:
		if port != 40000 {
			t.Errorf("a segment from session port %d, without a session, reached the server", port)
		}
	case <-time.After(patience):
		t.Fatal("what is no stray did not arrive either")
	}
	w.echo(80)
	w.clean()
}

// rawSender returns a function that sends IPv4 packets from a host as they are.
func (w *world) rawSender(host string) func(ip []byte) {
	w.t.Helper()
	var fd int
	err := w.lab.Host(host).Do(func() (err error) {
		fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_RAW)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = syscall.Close(fd) })
	return func(ip []byte) {
		w.t.Helper()
		if err := syscall.Sendto(fd, ip, 0, &syscall.SockaddrInet4{Addr: [4]byte(ip[16:20])}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// arrivals tells the source port of each TCP segment that reaches a host from an
// address.
func (w *world) arrivals(host string, from netip.Addr) <-chan uint16 {
	w.t.Helper()
	var fd int
	err := w.lab.Host(host).Do(func() (err error) {
		const all = 0x0300 // ETH_P_ALL in network order
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100000}); err != nil {
		w.t.Fatal(err)
	}
	out, done := make(chan uint16, 100), make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = unix.Close(fd) }()
		b := make([]byte, 1<<16)
		for w.t.Context().Err() == nil {
			n, err := unix.Read(fd, b)
			if err != nil {
				continue
			}
			h, err := packet.Parse(b[:n])
			if err == nil && h.Has(packet.TCP) && h.Src == from {
				select {
				case out <- h.SrcPort:
				default:
				}
			}
		}
	}()
	w.t.Cleanup(func() { <-done })
	return out
}
