package integration

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/qos/latency"
)

// wire is what a UDP payload of floodBytes is on the wire, as the kernel's classes
// count it: with the headers of Ethernet, IPv4 and UDP.
const (
	floodBytes = 1400
	wire       = float64(floodBytes+14+20+8) / floodBytes
)

// floods starts a flood into each of the UDP ports, from h1 to h3.
func (c *classes) floods(rate float64, ports ...int) []*stage.Flooding {
	c.t.Helper()
	var out []*stage.Flooding
	for _, p := range ports {
		f, err := stage.Flood{
			From: c.lab.Host("h1"), To: c.lab.Host("h3"), Dst: netip.AddrPortFrom(c.addr("h3"), uint16(p)), Rate: rate, Bytes: floodBytes,
		}.Start(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(f.Stop)
		out = append(out, f)
	}
	return out
}

// rates measures what arrives of each flood, in bit/s on the wire.
func rates(floods []*stage.Flooding, settle, over time.Duration) []float64 {
	pause.For(settle, "queues fill")
	before := make([]uint64, len(floods))
	began := time.Now()
	for i, f := range floods {
		_, before[i] = f.Received()
	}
	pause.For(over, "rates are measured for so long")
	took := time.Since(began).Seconds()
	out := make([]float64, len(floods))
	for i, f := range floods {
		_, now := f.Received()
		out[i] = 8 * float64(now-before[i]) * wire / took
	}
	return out
}

// Eight classes that all want more than there is: each has its guaranteed rate, and
// what is left goes to the first of them. And of each two that follow on each other, which
// send the same, the first has what it sends, and the second what that leaves.
func TestEightClassesKeepTheirOrder(t *testing.T) {
	c := newClasses(t, line(), true)
	const guaranteed = 800_000
	var ports []int
	for i := range 8 {
		ports = append(ports, 7000+i)
		spec := c.udp(fmt.Sprint("class", i), "h1", "h3", 7000+i, i)
		spec.MinRate = text(guaranteed)
		c.add(spec)
	}
	floods := c.floods(4e6, ports...)
	got := rates(floods, 2*time.Second, 5*time.Second)
	t.Logf("bit/s: %.0f", got)
	for i, r := range got {
		if r < 0.95*guaranteed {
			t.Errorf("class %d has %.0f bit/s of %d guaranteed", i, r, guaranteed)
		}
		if i > 0 && r > 1.05*got[i-1] {
			t.Errorf("class %d has more, %.0f bit/s, than class %d, %.0f", i, r, i-1, got[i-1])
		}
	}
	if got[0] < 3e6 {
		t.Errorf("the first class has %.0f bit/s: what is left does not go to it", got[0])
	}
	for _, f := range floods {
		f.Stop()
	}
	for i := range 7 {
		pair := c.floods(7.5e6, 7000+i, 7001+i)
		got := rates(pair, time.Second, 2*time.Second)
		t.Logf("classes %d and %d: %.0f", i, i+1, got)
		if got[0] < 2*got[1] || got[1] < 0.95*guaranteed {
			t.Errorf("class %d has %.0f bit/s, class %d %.0f", i, got[0], i+1, got[1])
		}
		for _, f := range pair {
			f.Stop()
		}
	}
}

// A class never has more than its greatest rate, and never less than its guaranteed
// one whatever else is sent.
func TestRatesAreHeld(t *testing.T) {
	c := newClasses(t, line(), true)
	least := c.udp("least", "h1", "h3", 7001, 6)
	least.MinRate = "3000000"
	most := c.udp("most", "h1", "h3", 7002, 0)
	most.MinRate, most.MaxRate = "1000000", "2000000"
	c.add(least)
	c.add(most)
	got := rates(c.floods(8e6, 7001, 7002, 7003), 2*time.Second, 5*time.Second)
	t.Logf("guaranteed 3 Mbit/s: %.0f; at most 2 Mbit/s: %.0f; no class: %.0f", got[0], got[1], got[2])
	if got[0] < 0.95*3e6 {
		t.Errorf("the guaranteed rate is not held: %.0f", got[0])
	}
	if got[1] > 1.05*2e6 || got[1] < 0.95*2e6 {
		t.Errorf("the greatest rate is not held: %.0f", got[1])
	}
}

// A mark does not leave a switch: the destination sees the DSCP that the source sent,
// and so does a class that names one.
func TestDSCPIsRestored(t *testing.T) {
	c := newClasses(t, line(), true)
	marked := c.udp("marked", "h1", "h3", 7001, 1)
	marked.Flows[0].IPDSCP = "46"
	c.add(marked)
	c.add(c.udp("plain", "h1", "h3", 7002, 2))
	for _, x := range []struct {
		class string
		port  uint16
		dscp  uint8
	}{{"marked", 7001, 46}, {"plain", 7002, 0}} {
		got, err := stage.SeenDSCP(t.Context(), c.lab.Host("h1"), c.lab.Host("h3"), netip.AddrPortFrom(c.addr("h3"), x.port), x.dscp, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[x.dscp] == 0 {
			t.Errorf("class %s: packets with DSCP %d arrive as %v", x.class, x.dscp, got)
		}
		within(t, 5*time.Second, "the queues of "+x.class+" have seen the packets", func() error { return seen(c.service, x.class, 3, 90) })
	}
}

// seen says whether a number of a class's queues have sent so many packets.
func seen(s *latency.Service, class string, queues int, packets uint64) error {
	stats, _ := s.Stats(class)
	n := 0
	for _, q := range stats.Queues {
		if q.Packets >= packets {
			n++
		}
	}
	if n < queues {
		return fmt.Errorf("%+v", stats.Queues)
	}
	return nil
}

// Without a classifier on a userspace datapath a class has no effect, which is said, and
// no packet is marked; when one is started it has, which is said too, and neither is any
// mark seen.
func TestClassWithoutEffect(t *testing.T) {
	c := newClasses(t, line(), false)
	if made := c.add(c.udp("quiet", "h1", "h3", 7001, 1)); made.State != latency.StateIneffective {
		t.Errorf("it is said to be %s", made.State)
	}
	unmarked := func() {
		t.Helper()
		got, err := stage.SeenDSCP(t.Context(), c.lab.Host("h1"), c.lab.Host("h3"), netip.AddrPortFrom(c.addr("h3"), 7001), 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0] == 0 {
			t.Errorf("packets arrive with DSCPs %v", got)
		}
	}
	unmarked()
	info, _ := c.service.Class("quiet")
	t.Log(info.Reason)
	c.startClassifiers()
	within(t, 15*time.Second, "the class is active", func() error {
		if info, _ := c.service.Class("quiet"); info.State != latency.StateActive {
			return fmt.Errorf("it is %s: %s", info.State, info.Reason)
		}
		return nil
	})
	unmarked()
	c.reaches("quiet", 7001)
	kinds := map[string]bool{}
	for _, e := range c.published() {
		kinds[e] = true
	}
	if !kinds["qos.class.ineffective"] || !kinds["qos.class.effective"] {
		t.Errorf("events %v", kinds)
	}
}
