package integration

import (
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/qos/latency"
)

// However full a class or its neighbours make a link of 20 Mbit/s, the controller goes on
// knowing that the link is there, and how long it is.
func TestLinksStandUnderLoad(t *testing.T) {
	const class, plain = 7001, 7002
	for _, tt := range []struct {
		name              string
		least             string
		ofClass, ofOthers float64
	}{
		{"a class that sends more than the link has, beside plain traffic", "5000000", 30e6, 5e6},
		{"a class within its promise, beside more plain traffic than is left", "15000000", 15e6, 6e6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newClassesOf(t, line(), 20_000_000, true)
			spec := c.udp("busy", "h1", "h3", class, 1)
			spec.MinRate = text(tt.least)
			c.add(spec)
			var mu sync.Mutex
			var downs []network.Event
			c.net.Subscribe(func(e network.Event) {
				if e.Kind == network.LinkDown {
					mu.Lock()
					defer mu.Unlock()
					downs = append(downs, e)
				}
			})
			busy, others := c.floods(tt.ofClass, class), c.floods(tt.ofOthers, plain)
			got := rates(append(busy, others...), time.Second, 10*time.Second)
			t.Logf("bit/s: class %.0f, plain %.0f", got[0], got[1])
			mu.Lock()
			defer mu.Unlock()
			for _, e := range downs {
				t.Errorf("the link %v to %v was declared dead", e.Link.From, e.Link.To)
			}
			for _, l := range c.net.Topology().Links {
				sent, lost := c.probes(l.From)
				t.Logf("%v to %v: %v, %d probes", l.From, l.To, l.Latency, sent)
				if sent == 0 || lost != 0 {
					t.Errorf("the queue of probes at %v has sent %d and lost %d", l.From, sent, lost)
				}
			}
		})
	}
}

// probes are those that the queue of probes at a port has sent and dropped.
func (c *classes) probes(at network.PortRef) (sent, dropped uint64) {
	c.t.Helper()
	s, ok := c.net.Switch(at.Switch)
	if !ok {
		c.t.Fatalf("switch %v has gone", at.Switch)
	}
	stats, err := s.QueueStats(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, q := range stats {
		if q.Port == at.Port && q.Queue > latency.MaxClasses {
			return q.TxPackets, q.TxErrors
		}
	}
	return 0, 0
}
