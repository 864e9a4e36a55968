package sos

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/lab"
)

// TestPortsLikeAgents has a client use ports with the numbers of ports that agents use at
// the time, and reuse each as soon as its connection has ended. Such a number makes the
// flows that Open vSwitch caches for first packets as specific as the connection. If these
// overlapped with other cached flows, Open vSwitch 3.1 could update one of them in place of
// the other, and the next first packet followed the previous session.
func TestPortsLikeAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosreuse", wan), options{quiet: true})
	w.allow(func(e *entry) { e.Ports = []string{"80"} }) // a range would make it wider
	w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	const long = 12
	agentPort := regexp.MustCompile(`->ip_dst,set_field:(\d+)->tcp_dst`)
	var ports []uint16
	for range long {
		c := w.mustDial(80)
		defer c.Close()
		exchange(t, c)
	}
	for _, r := range w.serviceRules("s1") {
		if m := agentPort.FindStringSubmatch(r); m != nil {
			n, _ := strconv.ParseUint(m[1], 10, 16)
			ports = append(ports, uint16(n))
		}
	}
	if len(ports) != long {
		t.Fatalf("%d rules towards an agent, want %d", len(ports), long)
	}
	for range 2 {
		for _, port := range ports {
			w.once(port)
		}
		w.eventually("only the long sessions are left", func() bool { return len(w.serviceRules("s1")) == 2*long+2 })
	}
}

// TestReturnAtOnce has a client reuse a port again and again: one first packet is enough
// for each connection, even while the previous session is still ending.
func TestReturnAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosreturn", wan), options{})
	w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	const times = 5
	for range times {
		w.once(7777)
	}
	w.clean()
	if n := len(w.sessions("past")); n != times {
		t.Errorf("%d sessions carried %d connections", n, times)
	}
}

// once opens a connection from a port of the client's, exchanges a few bytes and resets
// it, so that the port is free again. Its first packet must not get lost: the client's kernel
// sends it again only after a second, which a set-up on a busy machine may take as well.
func (w *world) once(port uint16) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testTimeout)
	defer cancel()
	from := netip.AddrPortFrom(w.lab.Host("client").Addr(), port)
	c, err := w.dial(ctx, w.serverAddr(80), from)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	again, err := sentAgain(c)
	if err != nil {
		w.t.Fatal(err)
	}
	exchange(w.t, c)
	if again > 0 {
		for _, r := range w.sessions("live") {
			if took := time.Duration(r.Setup.Total); r.Client == from && took < time.Second/2 {
				w.t.Errorf("the client at port %d had to send its first packet %d times again, and the set-up took only %v", port, again, took)
			}
		}
	}
	_ = c.SetLinger(0)
}

// exchange sends a line and waits for its echo.
func exchange(t testing.TB, c *net.TCPConn) {
	t.Helper()
	const line = "hello"
	b := make([]byte, len(line))
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	if _, err := fmt.Fprint(c, line); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, b); err != nil || string(b) != line {
		t.Fatalf("echoed %q: %v", b, err)
	}
}

// sentAgain returns how many segments a connection has retransmitted.
func sentAgain(c *net.TCPConn) (n uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var info *unix.TCPInfo
	cerr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if cerr != nil || err != nil {
		return 0, fmt.Errorf("%w, %v", err, cerr)
	}
	return info.Total_retrans, nil
}
