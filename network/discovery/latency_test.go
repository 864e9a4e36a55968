package discovery

import (
	"math/rand/v2"
	"testing"
	"time"
)

// world simulates probes and echoes of a link on a machine that delays messages.
type world struct {
	random   *rand.Rand
	oneWay   [2]time.Duration // of the control connections of both ends
	held     time.Duration    // the mean delay of a delayed message
	often    float64          // the share of delayed messages
	echoes   [2][]time.Duration
	echoesBy [2]Variation
}

func (w *world) delay() time.Duration {
	if w.random.Float64() >= w.often {
		return time.Duration(w.random.Int64N(int64(50 * time.Microsecond)))
	}
	return time.Duration(w.random.ExpFloat64() * float64(w.held))
}

// control measures one end's connection again, by a few echoes.
func (w *world) control(end int) Control {
	const echoes = 3
	for range echoes {
		w.echoes[end] = append(w.echoes[end], 2*w.oneWay[end]+w.delay()+w.delay())
	}
	w.echoes[end] = w.echoes[end][max(0, len(w.echoes[end])-echoes*FlightWindow):]
	w.echoesBy[end].Add(w.echoes[end][len(w.echoes[end])-1])
	return Control{RoundTrip: Shortest(w.echoes[end], echoes*RecentFlights), Jitter: w.echoesBy[end].Mean()}
}

// probes sends n probes over a link of this latency.
func (w *world) probes(t *latencyEstimate, n int, latency func() time.Duration) {
	for range n {
		flight := w.oneWay[0] + w.delay() + latency() + w.delay() + w.oneWay[1]
		t.add(flight, w.control(0), w.control(1), DefaultWindow)
	}
}

func newWorld(often float64, held time.Duration) *world {
	return &world{
		random: rand.New(rand.NewPCG(1, 2)), often: often, held: held,
		oneWay: [2]time.Duration{3 * time.Millisecond, 20 * time.Millisecond},
	}
}

// TestLatencyOnABusyMachine checks the latency when every fourth message is delayed by several
// times the link's latency.
func TestLatencyOnABusyMachine(t *testing.T) {
	for _, link := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		w := newWorld(0.25, 5*time.Millisecond)
		var tr latencyEstimate
		w.probes(&tr, 30, func() time.Duration { return link })
		for range 200 {
			w.probes(&tr, 1, func() time.Duration { return link })
			if got := time.Duration(tr.latency); got > link+500*time.Microsecond || got < link-500*time.Microsecond {
				t.Errorf("latency %v, want %v", got, link)
				break
			}
		}
	}
}

// TestLatencyTakesAShorterValueAtOnce checks that a latency from a delayed first probe is
// corrected by the next probe.
func TestLatencyTakesAShorterValueAtOnce(t *testing.T) {
	known := Control{RoundTrip: 2 * time.Millisecond}
	var tr latencyEstimate
	tr.add(1057*time.Millisecond, known, known, DefaultWindow)
	tr.add(4*time.Millisecond, known, known, DefaultWindow)
	if got := time.Duration(tr.latency); got != 2*time.Millisecond {
		t.Errorf("latency %v after a probe that was not held up, want 2ms", got)
	}
}

func TestLatencyAwaitsBothControlConnections(t *testing.T) {
	var tr latencyEstimate
	known := Control{RoundTrip: 2 * time.Millisecond}
	for _, c := range [][2]Control{{}, {known}, {{}, known}} {
		if tr.add(5*time.Millisecond, c[0], c[1], 8); tr.latency != 0 {
			t.Errorf("latency %v with control connections %v", tr.latency, c)
		}
	}
	if tr.add(5*time.Millisecond, known, known, 8); time.Duration(tr.latency) != 3*time.Millisecond {
		t.Errorf("latency %v, want 3ms", time.Duration(tr.latency))
	}
}

// TestJitter checks that a link whose latency is spread evenly over 4 ms has a third of that as
// jitter, whatever the control connections add.
func TestJitter(t *testing.T) {
	const spread = 4 * time.Millisecond
	for _, tt := range []struct {
		name  string
		often float64
		held  time.Duration
	}{{"idle machine", 0, 0}, {"busy machine", 0.2, time.Millisecond}} {
		w := newWorld(tt.often, tt.held)
		var tr latencyEstimate
		uneven := func() time.Duration {
			return 10*time.Millisecond + time.Duration(w.random.Int64N(int64(spread)))
		}
		sum, n := 0.0, 2000
		for range n {
			w.probes(&tr, 1, uneven)
			sum += tr.jitter
		}
		if got, want := time.Duration(sum/float64(n)), spread/3; got < want*8/10 || got > want*12/10 {
			t.Errorf("%s: jitter %v on average, want %v", tt.name, got, want)
		}
		even := func() time.Duration { return 10 * time.Millisecond }
		w.probes(&tr, 100, even)
		sum = 0
		for range n {
			w.probes(&tr, 1, even)
			sum += tr.jitter
		}
		if got := time.Duration(sum / float64(n)); got > 250*time.Microsecond {
			t.Errorf("%s: jitter %v of an even link", tt.name, got)
		}
	}
}

func TestOneLateProbeHardlyMovesJitter(t *testing.T) {
	var v Variation
	for range 50 {
		v.Add(5 * time.Millisecond)
	}
	v.Add(500 * time.Millisecond)
	v.Add(5 * time.Millisecond)
	if got := v.Mean(); got > 150*time.Microsecond {
		t.Errorf("jitter %v after one probe that was half a second late", got)
	}
}
