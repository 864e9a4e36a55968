package network

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

// closing is a connection that records that it was closed.
type closing struct {
	net.Conn
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func sourceAt(i int) source {
	return source{addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}
}

// TestFloodKeepsNoSwitchOut checks that a flood of connections, from any number of addresses,
// leaves a connection from elsewhere its place for long enough to show a certificate, and that it
// keeps its place after that.
func TestFloodKeepsNoSwitchOut(t *testing.T) {
	const each = 200 * time.Microsecond // between two connections of the flood
	for _, addresses := range []int{1, 17, 4096} {
		unknown, certified := newPendingLimiter(maxPending, maxPendingPerSource), newPendingLimiter(maxPending, maxPendingPerSource)
		now := time.Unix(1000, 0)
		flooded := 0
		flood := func(d time.Duration) {
			for until := now.Add(d); now.Before(until); now = now.Add(each) {
				flooded++
				unknown.add(&closing{}, sourceAt(flooded%addresses), now)
			}
		}
		flood(3 * time.Second)
		for i := range 20 {
			known, of := &closing{}, sourceAt(1<<20+i)
			at := unknown.add(known, of, now)
			if at == nil {
				t.Fatalf("%d addresses: attempt %d gets no place", addresses, i)
			}
			flood(pendingGrace - each)
			if known.closed {
				t.Fatalf("%d addresses: attempt %d is ousted before it could show its certificate", addresses, i)
			}
			if !at.moveTo(certified, source{certificate: [32]byte{byte(i)}}, now) {
				t.Fatalf("%d addresses: attempt %d gets no place among connections with a certificate", addresses, i)
			}
			flood(time.Second + time.Duration(i)*37*time.Millisecond) // attempts are made at any time of the flood
			if known.closed {
				t.Errorf("%d addresses: attempt %d is displaced by the flood", addresses, i)
			}
			at.release()
		}
		if len(certified.count) != 0 || certified.order.Len() != 0 {
			t.Errorf("%d addresses: places are left taken: %v", addresses, certified.count)
		}
	}
}

// nobody is a connection that does nothing.
type nobody struct {
	net.Conn
	addr net.Addr
}

func (c nobody) RemoteAddr() net.Addr { return c.addr }
func (nobody) Close() error           { return nil }

// BenchmarkConnectionsComeAndGo measures the cost of one connection among so many others, most of
// which get no place.
func BenchmarkConnectionsComeAndGo(b *testing.B) {
	const full = 4096
	for _, count := range []int{full / 16, full / 4, full} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			now := time.Now()
			for range b.N {
				s := newPendingLimiter(maxPending, maxPendingPerSource)
				var taken []*pendingConn
				for i := range count {
					conn := nobody{addr: &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>4), 1), Port: 1}}
					if t := s.add(conn, sourceByAddress(conn), now.Add(time.Duration(i)*time.Millisecond)); t != nil {
						taken = append(taken, t)
					}
				}
				for _, t := range taken {
					t.release()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/connection")
		})
	}
}
