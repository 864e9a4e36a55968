package stage

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
)

// A shaped link carries a transfer evenly: a bucket of tens of milliseconds must not let
// go what TCP makes in one piece, and then nothing for as long as the bucket lasts.
func TestShapedLinkIsEven(t *testing.T) {
	const step, settle = 10 * time.Millisecond, 500 * time.Millisecond
	l := lab.New(t, lab.Topology{
		Name: "even", Hosts: []lab.Host{{Name: "h1"}, {Name: "h2"}},
		Links: []lab.Link{{Name: "h1-h2", A: lab.End{Node: "h1"}, B: lab.End{Node: "h2"}}},
	})
	if err := ShapeLinks(t.Context(), l, func(lab.Link) float64 { return 10e6 }); err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(l.Host("h2").Addr(), 5001)
	var ln *net.TCPListener
	if err := l.Host("h2").Do(func() (err error) { ln, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(to)); return err }); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := ln.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		sent <- Bulk{From: l.Host("h1"), To: l.Host("h2"), Addr: to, Time: 2500 * time.Millisecond}.send(t.Context())
	}()
	arrived, err := arrivals(ln, step)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(arrived) <= int(settle/step) {
		t.Fatalf("the transfer ends after %d steps of %v", len(arrived), step)
	}
	arrived = arrived[settle/step:]
	empty := 0
	for _, n := range arrived {
		if n == 0 {
			empty++
		}
	}
	// Some are empty because a busy machine stands still now and then.
	if empty*4 > len(arrived) {
		t.Errorf("nothing arrives in %d of %d steps of %v: %v", empty, len(arrived), step, arrived)
	}
}

// arrivals counts the bytes that arrive of one connection, by step since its begin.
func arrivals(ln net.Listener, step time.Duration) (out []int, err error) {
	conn, err := ln.Accept()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	begin := time.Now()
	for buffer := make([]byte, 64<<10); ; {
		n, err := conn.Read(buffer)
		if err != nil {
			return out, nil // the sender has closed
		}
		for at := int(time.Since(begin) / step); len(out) <= at; {
			out = append(out, 0)
		}
		out[len(out)-1] += n
	}
}
