//go:build !race

package network_test

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/stats"
)

// agreement is how far apart the rates of two sources may be on average.
const agreement = 0.03

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
	_, err := l.Switch(sw).Vsctl(t.Context(), "--id=@s", "create", "sFlow", fmt.Sprintf("targets=%q", to.String()), "polling=1", "sampling=64",
		"--", "set", "Bridge", "br0", "sflow=@s")
	if err != nil {
		t.Fatal(err)
	}
}

// TestSourcesAgree has Open vSwitch push the counters that are polled as well.
func TestSourcesAgree(t *testing.T) {
	const rate, seconds = "20M", 12
	l := lab.New(t, lab.Line("netsflow", 2, delayline.Params{}))
	conn := listenSFlow(t, l)
	n, _ := run(t, l, network.Config{Measure: network.MeasureBoth, SFlowConn: conn, StatsInterval: time.Second})
	for _, sw := range []string{"s1", "s2"} {
		sendSFlow(t, l, sw, conn.LocalAddr())
	}
	ready(t, n, 2, 1, 2)
	before := n.Traffic().PushStats()
	ping(t, l, "h1", "h2")
	server := l.Host("h2").Command(t.Context(), "iperf3", "-s", "-1")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Wait() })
	eventually(t, "iperf3 to listen", func() bool { return sh(t, l, "h2", "ss", "-Hltn") != "" })
	client := l.Host("h1").Command(t.Context(), "iperf3", "-c", l.Host("h2").Addr().String(), "-u", "-b", rate, "-l", "1200", "-t", fmt.Sprint(seconds))
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- client.Wait() }()

	var talker stats.Talker // the largest seen of the load
	load := func(c stats.Conversation) bool {
		return c.At.Switch == 1 && c.Proto == 17 && c.Src.Addr() == l.Host("h1").Addr()
	}
	first, second := n.Topology().Links[0], n.Topology().Links[1]
	watched := map[network.PortRef]*[2]collected{first.From: {}, second.From: {}}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		case <-tick.C:
			if top := n.Traffic().Talkers(1, load); len(top) > 0 && top[0].Samples > talker.Samples {
				talker = top[0]
			}
			for at, by := range watched {
				for source := range by {
					if r, ok := n.Traffic().PortBy(at, stats.Source(source)); ok {
						by[source].add(r)
					}
				}
			}
		}
	}
	for at, by := range watched {
		polled, pushed := by[stats.Polled].steady(), by[stats.Pushed].steady()
		if len(polled) < seconds/2 || len(pushed) < seconds/2 {
			t.Fatalf("%v: %d rates were polled and %d pushed in %d s; %+v", at, len(polled), len(pushed), seconds, n.Traffic().PushStats())
		}
		for _, m := range []struct {
			name string
			load float64 // less are a few probes, which are not the same in two intervals
			of   func(stats.Rate) float64
		}{
			{"sent bit/s", 1e6, func(r stats.Rate) float64 { return r.TxBits }},
			{"received bit/s", 1e6, func(r stats.Rate) float64 { return r.RxBits }},
			{"sent packets/s", 1e3, func(r stats.Rate) float64 { return r.TxPackets }},
			{"received packets/s", 1e3, func(r stats.Rate) float64 { return r.RxPackets }},
		} {
			a, b := mean(polled, m.of), mean(pushed, m.of)
			t.Logf("%v: %s: polled %.0f (%d times), pushed %.0f (%d times): %+.2f %%", at, m.name, a, len(polled), b, len(pushed), 100*(b/a-1))
			if a > m.load && !(math.Abs(b/a-1) <= agreement) {
				t.Errorf("%v: %s: polled %.0f, pushed %.0f", at, m.name, a, b)
			}
		}
	}
	r := watched[first.From]
	if first.From.Switch != 1 {
		r = watched[second.From]
	}
	want := mean(r[stats.Polled].steady(), func(r stats.Rate) float64 { return r.TxBits })
	t.Logf("from %d samples the load is taken for %.0f bit/s, within %.0f %%: %+.1f %%", talker.Samples, talker.Bits, 100*talker.Error, 100*(talker.Bits/want-1))
	if !(math.Abs(talker.Bits/want-1) < 2*talker.Error) || talker.Error > 0.2 {
		t.Errorf("talker %+v, want %.0f bit/s", talker, want)
	}
	if s := n.Traffic().PushStats(); s.Malformed > 0 || s.Refused > before.Refused {
		t.Errorf("%+v, before the switches were connected %+v", s, before)
	}
}

// collected are the different rates of one source.
type collected []stats.Rate

func (c *collected) add(r stats.Rate) {
	if n := len(*c); n == 0 || r.At.After((*c)[n-1].At) {
		*c = append(*c, r)
	}
}

// steady leaves out the beginning and the end of the load.
func (c collected) steady() []stats.Rate {
	var out []stats.Rate
	for _, r := range c {
		if at := r.At.Sub(c[0].At); at > 3*time.Second && at < 10*time.Second {
			out = append(out, r)
		}
	}
	return out
}

func mean(rates []stats.Rate, of func(stats.Rate) float64) float64 {
	sum := 0.0
	for _, r := range rates {
		sum += of(r) * r.Interval.Seconds()
	}
	return sum / rates[len(rates)-1].At.Sub(rates[0].At.Add(-rates[0].Interval)).Seconds()
}
