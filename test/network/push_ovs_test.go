package network_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/stats"
)

// listenSFlow receives sFlow in the lab's control network.
func listenSFlow(t *testing.T, l *lab.Lab) net.PacketConn {
	t.Helper()
	var conn net.PacketConn
	err := l.Control().Do(func() (err error) {
		conn, err = net.ListenPacket("udp", netip.AddrPortFrom(l.ControllerAddr().Addr(), 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// sendSFlow has a switch send its counters each second, and one packet of many.
func sendSFlow(t *testing.T, l *lab.Lab, sw string, to net.Addr) {
	t.Helper()
	_, err := l.Switch(sw).Vsctl(t.Context(), "--id=@s", "create", "sFlow", fmt.Sprintf("targets=%q", to.String()), "polling=1", "sampling=16",
		"--", "set", "Bridge", "br0", "sflow=@s")
	if err != nil {
		t.Fatal(err)
	}
}

// TestOpenVSwitchPushesCounters has Open vSwitch send the counters that are polled as well, and
// samples of packets: both sources give rates of both ends of a link, and the samples name who
// talks. That equal counters make equal rates is proved in network/stats.
func TestOpenVSwitchPushesCounters(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("netsflow", 2, delayline.Params{}))
	conn := listenSFlow(t, l)
	n, _ := run(t, l, network.Config{Measure: network.MeasureBoth, SFlowConn: conn, StatsInterval: time.Second})
	ready(t, n, 2, 1, 2)
	for _, sw := range []string{"s1", "s2"} {
		sendSFlow(t, l, sw, conn.LocalAddr())
	}
	ping(t, l, "h1", "h2")
	load := l.Host("h1").Command(t.Context(), "ping", "-n", "-q", "-i", "0.002", "-s", "1400", l.Host("h2").Addr().String())
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = load.Wait() }) // after the test's context has ended it
	for _, k := range n.Topology().Links {
		for _, source := range []stats.Source{stats.Polled, stats.Pushed} {
			networktest.Eventually(t, fmt.Sprintf("rates of %v by source %v", k.From, source), func() bool {
				r, ok := n.Traffic().PortBy(k.From, source)
				return ok && r.TxBits > 100e3 && r.RxBits > 100e3 && r.TxPackets > 0 && r.RxPackets > 0
			})
		}
	}
	networktest.Eventually(t, "the samples to name who talks", func() bool {
		top := n.Traffic().Talkers(1, func(c stats.Conversation) bool {
			return c.At.Switch == 1 && c.Proto == 1 && c.Src.Addr() == l.Host("h1").Addr() && c.Dst.Addr() == l.Host("h2").Addr()
		})
		return len(top) == 1 && top[0].Samples > 1 && top[0].Bits > 0 && top[0].Error > 0
	})
	if s := n.Traffic().PushStats(); s.Datagrams == 0 || s.Malformed > 0 || s.Refused > 0 {
		t.Errorf("%+v", s)
	}
}
