package network_test

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// rawSocket sends frames by a host's interface past its network stack.
type rawSocket struct{ socket *packetsocket.Socket }

// openRaw opens an interface of a host.
func openRaw(t *testing.T, l *lab.Lab, host, dev string) *rawSocket {
	t.Helper()
	var s rawSocket
	err := l.Host(host).Do(func() error {
		i, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		s.socket, err = packetsocket.Open(i, packetsocket.Options{SendOnly: true})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.socket.Close() })
	return &s
}

func (s *rawSocket) send(t *testing.T, frame []byte) {
	t.Helper()
	if err := s.socket.Send(frame); err != nil {
		t.Fatal(err)
	}
}

// TestLatencyIsMeasured: the latency of a link is that of the delay line or more, each
// direction by itself. That the arithmetic is exact is held against a fake clock in
// network/discovery.
func TestLatencyIsMeasured(t *testing.T) {
	t.Parallel()
	top := lab.Line("netdelay", 2, delayline.Params{Delay: 10 * time.Millisecond})
	for i := range top.Links {
		if top.Links[i].AtoB.Delay > 0 {
			top.Links[i].BtoA.Delay = 300 * time.Millisecond
		}
	}
	l := lab.New(t, top)
	n, _ := run(t, l, network.Config{})
	ready(t, n, 2, 1, 2)
	latency := func(from openflow.DatapathID) time.Duration {
		for _, k := range n.Topology().Links {
			if k.From.Switch == from {
				return k.Latency
			}
		}
		return 0
	}
	networktest.Eventually(t, "latencies of 10 ms and 300 ms", func() bool {
		there, back := latency(1), latency(2)
		return there > 9*time.Millisecond && there < 150*time.Millisecond && back > 290*time.Millisecond
	})
	t.Logf("the delay line has 10 ms and 300 ms, measured are %v and %v", latency(1), latency(2))
}

// TestRatesAreMeasured compares the rate of a link with what the sending host's
// own counters say of the same interval.
func TestRatesAreMeasured(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("netrate", 2, delayline.Params{}))
	n, _ := run(t, l, network.Config{StatsInterval: 500 * time.Millisecond})
	ready(t, n, 2, 1, 2)
	ping(t, l, "h1", "h2")
	echoes := l.Host("h1").Command(t.Context(), "ping", "-n", "-q", "-i", "0.02", "-s", "1400", l.Host("h2").Addr().String())
	if err := echoes.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = echoes.Wait() }) // after the test's context has ended it
	dev := interfaceOf(t, l, "h1", l.Host("h1").Addr())
	sent := func() float64 {
		var links []struct {
			Stats struct {
				Tx struct{ Bytes float64 }
			} `json:"stats64"`
		}
		if err := json.Unmarshal([]byte(sh(t, l, "h1", "ip", "-s", "-j", "link", "show", "dev", dev)), &links); err != nil || len(links) != 1 {
			t.Fatalf("ip link: %v, %v", links, err)
		}
		return 8 * links[0].Stats.Tx.Bytes
	}
	var readings []reading
	var link network.Link
	networktest.Eventually(t, "the rate of the link to be about that of the host", func() bool {
		readings = append(readings, reading{time.Now(), sent()})
		for _, k := range n.Topology().Links {
			if k.From.Switch == 1 {
				link = k
			}
		}
		r, ok := n.Traffic().Port(link.From)
		from, to := at(readings, r.At.Add(-r.Interval)), at(readings, r.At)
		if !ok || from == 0 || to == 0 {
			return false
		}
		want := (to - from) / r.Interval.Seconds()
		near := want > 100e3 && r.TxBits > 0.5*want && r.TxBits < 2*want
		if near {
			t.Logf("the host sent %.0f bit/s, measured are %.0f", want, r.TxBits)
		}
		return near
	})
	networktest.Eventually(t, "the topology to show it", func() bool {
		for _, k := range n.Topology().Links {
			if k.Used < 100e3 {
				return false
			}
		}
		return true
	})
}

// reading is a counter at a time.
type reading struct {
	at    time.Time
	value float64
}

// at is the counter between two readings, zero outside all of them.
func at(rs []reading, t time.Time) float64 {
	for i := 1; i < len(rs); i++ {
		a, b := rs[i-1], rs[i]
		if !t.Before(a.at) && !t.After(b.at) {
			return a.value + (b.value-a.value)*float64(t.Sub(a.at))/float64(b.at.Sub(a.at))
		}
	}
	return 0
}

// TestAnswersInTheHostsPlace: once a host is known, the question for it need not
// leave the switch it is asked at.
func TestAnswersInTheHostsPlace(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("netproxy", 2, delayline.Params{}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 2, 1, 2)
	ping(t, l, "h1", "h2")
	target := l.Host("h2")
	dev := interfaceOf(t, l, "h2", target.Addr())
	networktest.Eventually(t, "the host to be known", func() bool { _, ok := n.HostByIP(target.Addr()); return ok })
	sh(t, l, "h2", "ip", "link", "set", dev, "arp", "off") // it answers no question itself now
	asker := interfaceOf(t, l, "h1", l.Host("h1").Addr())
	sh(t, l, "h1", "ip", "neigh", "flush", "dev", asker)
	_, _ = l.Host("h1").Command(t.Context(), "ping", "-n", "-c", "1", "-W", "1", target.Addr().String()).Output()
	got := sh(t, l, "h1", "ip", "neigh", "show", "to", target.Addr().String(), "dev", asker)
	if want := openflow.MAC(target.MAC()).String(); !strings.Contains(got, want) {
		t.Errorf("h1 has learned %q, want %s", strings.TrimSpace(got), want)
	}
}
