package network

import (
	"fmt"
	"net"
	"testing"
	"time"
)

// nobody is a connection of no consequence.
type nobody struct {
	net.Conn
	addr net.Addr
}

func (c nobody) RemoteAddr() net.Addr { return c.addr }
func (nobody) Close() error           { return nil }

// BenchmarkConnectionsComeAndGo tells what one connection costs that comes and goes
// among so many others, most of which get no seat.
func BenchmarkConnectionsComeAndGo(b *testing.B) {
	const full = 4096
	for _, count := range []int{full / 16, full / 4, full} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			now := time.Now()
			for range b.N {
				s := newSeats(seatsInAll, seatsEach)
				var taken []*seat
				for i := range count {
					conn := nobody{addr: &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>4), 1), Port: 1}}
					if t := s.take(conn, addressOf(conn), now.Add(time.Duration(i)*time.Millisecond)); t != nil {
						taken = append(taken, t)
					}
				}
				for _, t := range taken {
					t.leave()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/connection")
		})
	}
}
