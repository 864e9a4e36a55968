package network_test

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/stats"
)

// pushDatagram returns an sFlow datagram with the number of bytes that a port has sent.
func pushDatagram(at network.PortRef, sent uint64) []byte {
	var b []byte
	add := func(words ...uint32) {
		for _, w := range words {
			b = binary.BigEndian.AppendUint32(b, w)
		}
	}
	add(5, 1, 0x7f000001, 0, 1, 1000, 1) // one sample
	add(2, 12+8+88+8+12, 1, 7, 2)        // counters of ifIndex 7, two records
	add(1, 88, 7, 6, 0, 0, 0, 3)         // of the interface
	add(0, 0, 0, 0, 0, 0, 0, 0)          // received: nothing
	add(uint32(sent>>32), uint32(sent), 0, 0, 0, 0, 0, 0)
	add(1004, 12, uint32(at.Switch>>32), uint32(at.Switch), at.Port)
	return b
}

// TestPushedCounters checks that counters are used for rates only if they come from the switch's
// address.
func TestPushedCounters(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{Measure: network.MeasureSFlow, SFlow: "127.0.0.1:0", StatsInterval: 50 * time.Millisecond})
	networktest.Connect(t, n, fake.NewSwitch(fake.Options{DPID: 0xa1, Ports: 2}), 0xa1)
	from := func(address string) net.Conn {
		local, err := net.ResolveUDPAddr("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.DialUDP("udp", local, n.Traffic().SFlowAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	right, wrong := from("127.0.0.1:0"), from("127.0.0.2:0")
	send := func(conn net.Conn, b []byte) {
		t.Helper()
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	at := network.PortRef{Switch: 0xa1, Port: 1}
	for _, tt := range []struct {
		name string
		conn net.Conn
		b    []byte
		want network.PushStats
	}{
		{"from elsewhere", wrong, pushDatagram(at, 1), network.PushStats{Datagrams: 1, Refused: 1}},
		{"of a switch that is not connected", right, pushDatagram(network.PortRef{Switch: 0xa2, Port: 1}, 1), network.PushStats{Datagrams: 1, Refused: 1}},
		{"of a port that does not exist", right, pushDatagram(network.PortRef{Switch: 0xa1, Port: 3}, 1), network.PushStats{Datagrams: 1, Refused: 1}},
		{"of no port at all", right, pushDatagram(network.PortRef{}, 1), network.PushStats{Datagrams: 1, Refused: 1}},
		{"of the switch itself", right, pushDatagram(network.PortRef{Switch: 0xa1, Port: 0xfffe}, 1), network.PushStats{Datagrams: 1}},
		{"cut short", right, pushDatagram(at, 1)[:100], network.PushStats{Datagrams: 1, Malformed: 1}},
	} {
		before := n.Traffic().PushStats()
		send(tt.conn, tt.b)
		networktest.Eventually(t, tt.name+" to be counted", func() bool {
			s := n.Traffic().PushStats()
			return network.PushStats{Datagrams: s.Datagrams - before.Datagrams, Malformed: s.Malformed - before.Malformed, Refused: s.Refused - before.Refused} == tt.want
		})
	}
	if _, ok := n.Traffic().PortBy(at, stats.Pushed); ok {
		t.Error("what was refused has made a rate")
	}
	sent := uint64(0)
	networktest.Eventually(t, "a rate", func() bool {
		sent += 1000
		send(right, pushDatagram(at, sent))
		r, ok := n.Traffic().Port(at)
		return ok && r.TxBits > 0
	})
	if _, ok := n.Traffic().PortBy(at, stats.Polled); ok {
		t.Error("counters were asked for")
	}
}

// faulty is a socket whose first reads fail.
type faulty struct {
	net.PacketConn
	failures atomic.Int32
}

func (f *faulty) ReadFrom(b []byte) (int, net.Addr, error) {
	if f.failures.Add(-1) >= 0 {
		return 0, nil, &net.OpError{Op: "read", Net: "udp", Err: syscall.ENOBUFS}
	}
	return f.PacketConn.ReadFrom(b)
}

// TestReceiverOutlivesErrors checks that an error of the socket is counted, and that later
// datagrams are received.
func TestReceiverOutlivesErrors(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &faulty{PacketConn: conn}
	f.failures.Store(2)
	n, _ := networktest.Start(t, network.Config{Measure: network.MeasureSFlow, SFlowConn: f})
	out, err := net.Dial("udp", conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	if _, err := out.Write([]byte("no sFlow")); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "the datagram after two errors", func() bool {
		return n.Traffic().PushStats() == network.PushStats{Failed: 2, Datagrams: 1, Malformed: 1}
	})
}
