package testbed

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

func TestPortBytes(t *testing.T) {
	got := portBytes(`OFPST_PORT reply (OF1.3) (xid=0x2): 2 ports
  port LOCAL: rx pkts=0, bytes=0, drop=0, errs=0, frame=0, over=0, crc=0
           tx pkts=9, bytes=9, drop=1, errs=0, coll=0
           duration=1.5s
  port  1: rx pkts=3, bytes=270, drop=0, errs=0, frame=0, over=0, crc=0
           tx pkts=12, bytes=1138, drop=0, errs=0, coll=0
           duration=1.5s
  port "s1p2": rx pkts=3, bytes=270, drop=0, errs=0, frame=0, over=0, crc=0
           tx pkts=12, bytes=77, drop=0, errs=0, coll=0
  port 12: rx pkts=3, bytes=270, drop=0, errs=0, frame=0, over=0, crc=0
           tx pkts=12, bytes=4, drop=0, errs=0, coll=0
`)
	if len(got) != 2 || got[1] != 1138 || got[12] != 4 {
		t.Errorf("%v, want 1138 of port 1 and 4 of port 12", got)
	}
}

// TestArrivals checks that datagrams of a feed are counted where they arrive, including those that
// are missing or arrive again.
func TestArrivals(t *testing.T) {
	live.Test(t)
	l := lab.New(t, lab.Topology{
		Name: "arrivals", Hosts: []lab.Host{{Name: "a"}, {Name: "b"}}, Links: []lab.Link{lab.Both("a", "b", delayline.Params{})},
	})
	to := l.Host("b")
	arrivals, err := CountArrivals(to, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer arrivals.Close()
	feed, err := OpenFeed(l.Host("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	d := Datagram{From: 7, To: netip.AddrPortFrom(to.Addr(), 9), MAC: to.MAC(), Size: 100}
	flow := PortPair{From: 7, To: 9}
	if err := arrivals.Expect(flow); err != nil {
		t.Fatal(err)
	}
	began := Uptime()
	sending, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	sent, err := feed.Send(sending, time.Millisecond, d)
	if err != nil {
		t.Fatal(err)
	}
	b := &feedBuffer{payload: make([]byte, d.Size)}
	for _, jump := range []uint32{10, 0} { // ten are left out, and the last one is sent again
		feed.numbers[target{d.From, d.To}] += jump
		if jump == 0 {
			feed.numbers[target{d.From, d.To}]--
		}
		if err := feed.send(b, d); err != nil {
			t.Fatal(err)
		}
	}
	got, err := arrivals.Of(flow)
	if err != nil {
		t.Fatal(err)
	}
	if sent == 0 || got.Packets != sent+2 || got.Lost != 10 || got.Doubled != 1 {
		t.Errorf("%d sent and two more, with ten left out and one again: got %+v", sent, got)
	}
	if got.First < began || got.Last < got.First || got.Last > Uptime() {
		t.Errorf("from %v to now, %v: the first at %v, the last at %v", began, Uptime(), got.First, got.Last)
	}
}
