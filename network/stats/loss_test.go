package stats

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// flow is traffic over the link from a to b, counted by two ends that are read at different
// times.
type flow struct {
	rate    func(second float64) float64 // packets per second
	lost    float64                      // share of packets
	latency float64                      // seconds
	every   float64                      // seconds between two readings
	later   float64                      // seconds from reading a to reading b
}

// counted is how many packets went in until each millisecond.
func (f flow) counted(seconds float64) []float64 {
	sums := make([]float64, int(seconds*1000)+1)
	for ms := 1; ms < len(sums); ms++ {
		sums[ms] = sums[ms-1] + f.rate(float64(ms)/1000)/1000
	}
	return sums
}

// observe reads both ends for a number of seconds and returns what the table says
// of the link each time.
func (f flow) observe(seconds float64, see func(second float64, l Load)) {
	table := New(Options{Interval: time.Duration(f.every * float64(time.Second))})
	l := topology.Link{From: a, To: b, Latency: time.Duration(f.latency * float64(time.Second))}
	sums := f.counted(seconds + f.later)
	sent := func(second float64) float64 { return sums[int(max(0, second)*1000)] }
	for s := 0.0; s < seconds; s += f.every {
		age := time.Minute + time.Duration(s*float64(time.Second))
		table.Observe(sample(a, s, 0, age, Counters{TxPackets: uint64(sent(s))}))
		at := s + f.later
		came := uint64(sent(at-f.latency) * (1 - f.lost))
		table.Observe(sample(b, at, 0, age, Counters{RxPackets: came}))
		table.CompareEnds([]topology.Link{l})
		see(s, table.Load(l))
	}
}

func steady(float64) float64 { return 5000 }

// bursts starts and stops every few seconds, at no multiple of the interval.
func bursts(s float64) float64 {
	if math.Mod(s, 13.7) < 6.3 {
		return 5000
	}
	return 1
}

func TestLoss(t *testing.T) {
	for _, tt := range []struct {
		name string
		flow
	}{
		{"steady", flow{rate: steady, lost: 0.001, every: 5, later: 0.004}},
		{"a long link", flow{rate: steady, lost: 0.001, latency: 0.3, every: 5, later: 0.004}},
		{"bursts", flow{rate: bursts, lost: 0.005, latency: 0.02, every: 1, later: 0.002}},
		{"ends read at any time", flow{rate: steady, lost: 0.001, every: 5, later: 2.3}},
	} {
		var last Load
		tt.observe(100, func(_ float64, l Load) { last = l })
		if last.Packets == 0 || last.Path < 0.9*tt.lost || last.Path > 1.1*tt.lost {
			t.Errorf("%s: loss %v, %v; want %v", tt.name, last.Path, last.Packets > 0, tt.lost)
		}
	}
}

// TestNoLossIsNone checks that starts and stops of the traffic, the latency of the link and
// single packets do not look like loss.
func TestNoLossIsNone(t *testing.T) {
	idle := func(float64) float64 { return 1.1 }
	for _, tt := range []struct {
		name string
		flow
	}{
		{"idle but for probes", flow{rate: idle, latency: 0.02, every: 5, later: 0.004}},
		{"idle, ends read at any time", flow{rate: idle, every: 5, later: 1.7}},
		{"bursts", flow{rate: bursts, every: 5, later: 0.004}},
		{"bursts over a long link", flow{rate: bursts, latency: 0.3, every: 5, later: 0.004}},
		{"bursts, ends read at any time", flow{rate: bursts, every: 5, later: 2.3}},
	} {
		tt.observe(150, func(s float64, l Load) {
			if l.Path != 0 {
				t.Errorf("%s: loss %v at %v s", tt.name, l.Path, s)
			}
		})
	}
}

// TestLossAfterAReset checks that packets counted before a reset of one end do not count as
// lost.
func TestLossAfterAReset(t *testing.T) {
	table := New(Options{Interval: time.Second})
	for i := range 20 {
		s, restarted := float64(i), 0
		if i >= 10 {
			restarted = 10
		}
		table.Observe(sample(a, s, 0, time.Minute+time.Duration(i)*time.Second, Counters{TxPackets: uint64(1000 * i)}))
		table.Observe(sample(b, s, 0, time.Duration(i-restarted+1)*time.Second, Counters{RxPackets: uint64(1000 * (i - restarted))}))
		table.CompareEnds([]topology.Link{link})
		if l := table.Load(link); l.Path != 0 {
			t.Errorf("loss %v after %d s", l.Path, i)
		}
	}
}
