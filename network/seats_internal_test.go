package network

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// closing is a connection that notes that it was closed.
type closing struct {
	net.Conn
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func sourceAt(i int) source {
	return source{addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}
}

// Whoever opens connections without pause, from however many addresses, leaves each connection from
// elsewhere a seat for long enough to show a certificate; with that it has a seat for good.
func TestFloodLeavesSeats(t *testing.T) {
	const each = 200 * time.Microsecond // between two connections of the flood
	for _, addresses := range []int{1, 17, 4096} {
		strangers, proven := newSeats(seatsInAll, seatsEach), newSeats(seatsInAll, seatsEach)
		now := time.Unix(1000, 0)
		flooded := 0
		flood := func(d time.Duration) {
			for until := now.Add(d); now.Before(until); now = now.Add(each) {
				flooded++
				strangers.take(&closing{}, sourceAt(flooded%addresses), now)
			}
		}
		flood(3 * time.Second)
		for i := range 20 {
			known, of := &closing{}, sourceAt(1<<20+i)
			at := strangers.take(known, of, now)
			if at == nil {
				t.Fatalf("%d addresses: attempt %d gets no seat", addresses, i)
			}
			flood(seatPatience - each)
			if known.closed {
				t.Fatalf("%d addresses: attempt %d is ousted before it could show its certificate", addresses, i)
			}
			if !at.move(proven, source{certificate: [32]byte{byte(i)}}, now) {
				t.Fatalf("%d addresses: attempt %d gets no seat of those who have shown their certificate", addresses, i)
			}
			flood(time.Second + time.Duration(i)*37*time.Millisecond) // attempts are made at any time of the flood
			if known.closed {
				t.Errorf("%d addresses: attempt %d is ousted by strangers", addresses, i)
			}
			at.leave()
		}
		if len(proven.count) != 0 || proven.order.Len() != 0 {
			t.Errorf("%d addresses: seats are left taken: %v", addresses, proven.count)
		}
	}
}
