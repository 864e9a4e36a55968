package testbed

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// Do runs f, because sockets of this machine itself are opened in no other namespace.
func (localhost) Do(f func() error) error { return f() }

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

func TestStreamOverLoopback(t *testing.T) {
	s, err := StartStream(t.Context(), StreamOptions{Sender: localhost{}, Receiver: localhost{}, To: loopback})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { _, received := s.Count(); return received >= 300 })
	if time.Since(s.LastArrival()) > time.Minute {
		t.Errorf("the last packet arrived at %v", s.LastArrival())
	}
	l := s.Stop()
	if r := l.All(); r.Lost != 0 || r.Doubled != 0 || r.Reordered != 0 || r.Sent < 300 || l.Refused() != 0 {
		t.Errorf("loopback: %+v, %d refused", r, l.Refused())
	}
}

// TestStreamThroughMischief checks that the loss, duplication and reordering of a relay are
// detected exactly.
func TestStreamThroughMischief(t *testing.T) {
	relay, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	if err != nil {
		t.Fatal(err)
	}
	s, err := StartStream(t.Context(), StreamOptions{
		Sender: localhost{}, Receiver: localhost{}, To: loopback, Dial: relay.LocalAddr().(*net.UDPAddr).AddrPort(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { impair(relay, s.recv.LocalAddr()) })
	waitFor(t, func() bool { sent, _ := s.Count(); return sent >= 400 })
	r := s.Stop().All()
	relay.Close()
	running.Wait()
	if r.Lost < 3 || r.Doubled < 3 || r.Reordered < 3 || r.Lost > r.Sent/10 {
		t.Errorf("through the relay: %+v", r)
	}
}

// impair relays packets. It loses one packet of twenty, duplicates one, and swaps one with its
// successor.
func impair(relay *net.UDPConn, to net.Addr) {
	var held []byte
	for i := 0; ; i++ {
		b := make([]byte, 2048)
		n, err := relay.Read(b)
		if err != nil {
			return
		}
		b = b[:n]
		switch i % 20 {
		case 5:
		case 10:
			_, _ = relay.WriteTo(b, to)
			_, _ = relay.WriteTo(b, to)
		case 15:
			held = b
		default:
			_, _ = relay.WriteTo(b, to)
			if held != nil {
				_, _ = relay.WriteTo(held, to)
				held = nil
			}
		}
	}
}

func waitFor(t *testing.T, ready func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-deadline:
			t.Fatal("it takes too long")
		case <-tick.C:
		}
	}
}
