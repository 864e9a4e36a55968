package testbed

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"
)

// peersOverLoopback returns options for a conversation with a server at a loopback address of its
// own, from two others.
func peersOverLoopback(t *testing.T) PeerOptions {
	t.Helper()
	server := netip.MustParseAddr("127.0.0.3")
	l, err := net.ListenPacket("udp", netip.AddrPortFrom(server, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	port := l.LocalAddr().(*net.UDPAddr).Port
	l.Close()
	return PeerOptions{
		Device: localhost{}, Server: localhost{}, First: netip.MustParseAddr("127.0.0.1"), Second: netip.MustParseAddr("127.0.0.2"),
		Listen: netip.AddrPortFrom(server, uint16(port)), Rate: 200, Watch: time.Minute,
	}
}

func TestPeersMove(t *testing.T) {
	for name, start := range map[string]func(context.Context, PeerOptions) (Peer, error){"TCP": StartTCP, "QUIC": StartQUIC} {
		t.Run(name, func(t *testing.T) {
			o := peersOverLoopback(t)
			o.Talks = true
			p, err := start(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			arrived := func() int { _, n := p.Count(); return n }
			waitFor(t, func() bool { return arrived() > 50 })
			if err := p.Move(t.Context()); err != nil {
				t.Error(err)
			}
			before := arrived()
			waitFor(t, func() bool { return arrived() > before+50 })
			if r := p.Stop().All(); r.Lost != 0 || r.Sent < 100 {
				t.Errorf("%s: %+v", name, r)
			}
		})
	}
}

// TestPeersNoticeSilence checks that an application that receives nothing moves by itself.
func TestPeersNoticeSilence(t *testing.T) {
	o := peersOverLoopback(t)
	o.Watch = time.Nanosecond // so that every interval between two messages counts as a dead link
	p, err := StartTCP(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { _, n := p.Count(); return n > 50 })
	first := p.(*tcpPeer).first
	waitFor(t, func() bool { _, err := first.Write(nil); return err != nil }) // wait until it is closed
	if r := p.Stop().All(); r.Lost != 0 {
		t.Errorf("%+v", r)
	}
}

func TestPeerWithoutServer(t *testing.T) {
	o := peersOverLoopback(t)
	o.Listen = netip.MustParseAddrPort("192.0.2.1:4000") // an address that nobody has
	for name, start := range map[string]func(context.Context, PeerOptions) (Peer, error){"TCP": StartTCP, "QUIC": StartQUIC} {
		if p, err := start(t.Context(), o); err == nil {
			p.Stop()
			t.Errorf("%s talks to nobody", name)
		}
	}
}
