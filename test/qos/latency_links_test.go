package qos

import (
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/qos/classes"
)

// TestLinksStandUnderLoad checks that the controller's probes have a queue of their own,
// which loses none of them, however full a class or other traffic makes a link of 20
// Mbit/s. So the link stays known.
func TestLinksStandUnderLoad(t *testing.T) {
	t.Parallel()
	const class, plain = 7001, 7002
	c := newClassesOf(t, line(), 20_000_000, true)
	c.settled(0)
	for _, tt := range []struct {
		name              string
		least             string
		ofClass, ofOthers float64
	}{
		{"a class that sends more than the link has, beside plain traffic", "5000000", 30e6, 5e6},
		{"a class within its promise, beside more plain traffic than is left", "15000000", 15e6, 6e6},
	} {
		c.run(tt.name, func(t *testing.T) {
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
			busy, others := c.floods(tt.ofClass, class)[0], c.floods(tt.ofOthers, plain)[0]
			within(t, testTimeout, "both floods fill the link", func() error {
				n, _ := busy.Received()
				m, _ := others.Received()
				if n < 2000 || m < 20 { // the class leaves the others little
					return fmt.Errorf("%d packets of the class, %d others", n, m)
				}
				return nil
			})
			began := map[network.PortRef]uint64{}
			for _, l := range c.net.Topology().Links {
				began[l.From], _ = c.probes(l.From)
			}
			// One probe is sent every discoveryInterval, and a link is dead if none has arrived
			// for discoveryTimeout.
			most := uint64(discoveryTimeout/discoveryInterval) + 4
			within(t, 2*testTimeout, "probes are sent for longer than a link may be silent", func() error {
				for at, before := range began {
					if sent, _ := c.probes(at); sent < before+most {
						return fmt.Errorf("%d by %v, want %d", sent-before, at, most)
					}
				}
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			for _, e := range downs {
				t.Errorf("the link %v to %v was declared dead", e.Link.From, e.Link.To)
			}
			for at := range began {
				if _, lost := c.probes(at); lost != 0 {
					t.Errorf("the queue of probes at %v has lost %d", at, lost)
				}
			}
		})
	}
}

// probes returns how many probes the queue of probes at a port has sent and dropped.
func (c *classesLab) probes(at network.PortRef) (sent, dropped uint64) {
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
		if q.Port == at.Port && q.Queue > classes.MaxClasses {
			return q.TxPackets, q.TxErrors
		}
	}
	return 0, 0
}
