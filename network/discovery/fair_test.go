package discovery

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// TestManyPortsTakeNoProbesFromOthers checks that a switch with more ports than can be probed in
// time does not delay the probes of others: each switch has its turn, whatever its number.
func TestManyPortsTakeNoProbesFromOthers(t *testing.T) {
	var many []topology.PortRef
	for p := range 3000 {
		many = append(many, ref(1, p+1))
	}
	// The wire asks once a millisecond: 8,000 probes a second are possible, 30,000 are due.
	w := newWire(t, Options{Interval: 100 * time.Millisecond, Settle: 100 * time.Millisecond, Burst: 8}, append(many, ref(2, 1), ref(3, 1))...)
	w.connect(ref(2, 1), ref(3, 1))
	w.run(time.Second)
	if got, want := w.took(), "up 2/1-3/1, up 3/1-2/1, "; len(got) < len(want) || got[:len(want)] != want {
		t.Fatalf("first came %.100q, want %q", got, want)
	}
	for range 10 {
		w.run(time.Second)
		if got := w.took(); got != "" && len(w.d.Links()) != 2 {
			t.Fatalf("the link did not stay: %.200q", got)
		}
	}
	w.note(w.d.SwitchDown(1))
	if got := w.took(); got != "" {
		t.Errorf("the end of a switch without links changed %q", got)
	}
	if links := w.d.Links(); len(links) != 2 {
		t.Errorf("links are %v", links)
	}
}

// BenchmarkPortsComeAndGo measures the time for one port, from its addition to the removal of
// its switch, beside many others. It must not grow with their number.
func BenchmarkPortsComeAndGo(b *testing.B) {
	const full = 65535
	for _, ports := range []int{full / 16, full / 4, full} {
		b.Run(fmt.Sprint(ports), func(b *testing.B) {
			for range b.N {
				d := New(Options{}, t0)
				for p := range ports {
					d.PortUp(ref(1, p+1), openflow.MAC{2}, t0)
				}
				now := t0
				for until := t0.Add(1500 * time.Millisecond); now.Before(until); {
					due := d.Tick(now)
					for _, at := range due.Probe {
						d.Probe(nil, at, now)
					}
					if now = due.Next; !now.After(t0) {
						now = t0.Add(1)
					}
				}
				d.SwitchDown(1)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(ports), "ns/port")
		})
	}
}
