package stats

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// phase is traffic for a limited time.
type phase struct {
	seconds float64
	rate    float64 // packets per second
	lost    float64 // share of them
}

// idle is the traffic of a link without users: probes and the like.
const idle = 1.3

// play sends the traffic of phases over a link with some capacity, reads both ends every five
// seconds, and returns the link's loss after each reading.
func play(capacity uint64, phases []phase, see func(second float64, l Load)) {
	const every, later, bytes = 5, 0.003, 1000
	table := New(Options{})
	l := topology.Link{From: a, To: b, Capacity: capacity}
	var sent, came float64
	second, next := 0.0, 0.0
	for _, p := range phases {
		for end := second + p.seconds; second < end-1e-9; second += 0.001 {
			if second >= next {
				age := time.Minute + time.Duration(second*float64(time.Second))
				table.Observe(sample(a, second, 0, age, Counters{TxPackets: uint64(sent), TxBytes: uint64(bytes * sent)}))
				table.Observe(sample(b, second+later, 0, age, Counters{RxPackets: uint64(came), RxBytes: uint64(bytes * came)}))
				table.CompareEnds([]topology.Link{l})
				see(second, table.Load(l))
				next += every
			}
			sent += p.rate / 1000
			came += p.rate / 1000 * (1 - p.lost)
		}
	}
}

// TestLossThatIsOver checks that the losses of a burst end with it: a link that is idle again,
// or carries other traffic, does not lose what it lost then.
func TestLossThatIsOver(t *testing.T) {
	for _, tt := range []struct {
		name     string
		capacity uint64
		phases   []phase
		after    float64 // seconds after which no loss may be reported
	}{
		{"a burst over an idle link", 0, []phase{{41, idle, 0}, {3, 2000, 0.15}, {120, idle, 0}}, 0},
		{"a burst that two readings share", 0, []phase{{38.5, idle, 0}, {3, 2000, 0.15}, {120, idle, 0}}, 0},
		{"a burst after clean traffic", 0, []phase{{60, 1000, 0}, {4, 2000, 0.2}, {120, idle, 0}}, 0},
		{"a burst before clean traffic", 0, []phase{{20, idle, 0}, {4, 2000, 0.2}, {120, 1000, 0}}, 0},
		{"minutes of a full link", 0, []phase{{30, idle, 0}, {120, 2500, 0.2}, {60, idle, 0}}, 150 + 20},
		{"minutes of a link that is known to be full", 16_000_000, []phase{{30, idle, 0}, {120, 2500, 0.2}, {60, idle, 0}}, 0},
		{"a loss that traffic comes after", 0, []phase{{60, 1000, 0.1}, {60, 1000, 0}}, 60 + 20},
	} {
		play(tt.capacity, tt.phases, func(s float64, l Load) {
			if s >= tt.after && l.Path != 0 {
				t.Errorf("%s: loss %.3f at %v s", tt.name, l.Path, s)
			}
		})
	}
}

// TestLossOfThePath checks that the path's loss is found in spite of additional losses by
// queues.
func TestLossOfThePath(t *testing.T) {
	for _, tt := range []struct {
		name         string
		phases       []phase
		from, to     float64 // seconds
		least, worst float64
	}{
		{"steady", []phase{{20, idle, 0}, {80, 1000, 0.01}}, 40, 100, 0.009, 0.011},
		{"with a burst in it", []phase{{60, 1000, 0.01}, {3, 2000, 0.3}, {60, 1000, 0.01}}, 30, 120, 0.008, 0.012},
		{"less than before", []phase{{60, 1000, 0.1}, {60, 1000, 0.01}}, 80, 120, 0.008, 0.012},
		{"more than before", []phase{{60, 1000, 0.01}, {60, 1000, 0.1}}, 80, 120, 0.08, 0.12},
		{"sparse", []phase{{120, 4, 0.2}}, 60, 120, 0.1, 0.25},
	} {
		play(0, tt.phases, func(s float64, l Load) {
			if s >= tt.from && s <= tt.to && (l.Path < tt.least || l.Path > tt.worst) {
				t.Errorf("%s: loss %.4f at %v s, want %v to %v", tt.name, l.Path, s, tt.least, tt.worst)
			}
		})
	}
}

// TestLossOfQueues checks that losses by queues are reported separately, with their time, as
// long as the window covers them, and that every figure says how many packets and which time it
// is based on.
func TestLossOfQueues(t *testing.T) {
	burst := []phase{{41, idle, 0}, {3, 2000, 0.15}, {120, idle, 0}}
	play(0, burst, func(s float64, l Load) {
		switch lost := l.Queue != 0; {
		case lost != (s >= 45 && s < 102):
			t.Errorf("queues have lost %v at %v s", l.Queue, s)
		case lost && (l.Queue < 0.14 || l.Queue > 0.15 || l.QueueAt.Sub(t0).Round(time.Second) != 45*time.Second):
			t.Errorf("queues have lost %v until %v, want 0.15 until 45 s", l.Queue, l.QueueAt.Sub(t0))
		}
		if s < 5 {
			return
		}
		if age := t0.Add(time.Duration(s * float64(time.Second))).Sub(l.At); s != 45 && age > 6*time.Second || l.At.Sub(l.Since) > time.Minute+time.Second {
			t.Errorf("at %v s the loss is of %v to %v", s, l.Since.Sub(t0), l.At.Sub(t0))
		}
		if most := uint64(idle*60) + 1; l.Packets == 0 || l.Packets > most {
			t.Errorf("at %v s the loss is of %d packets, want at most the %d outside the burst", s, l.Packets, most)
		}
	})
	full := []phase{{20, 1000, 0.01}, {60, 2500, 0.21}, {40, 1000, 0.01}}
	play(16_000_000, full, func(s float64, l Load) {
		if s >= 60 && s <= 80 && (l.Queue < 0.15 || l.Queue > 0.21) {
			t.Errorf("at %v s the queue of a full link has lost %v", s, l.Queue)
		}
		if s >= 20 && s <= 65 && (l.Path < 0.008 || l.Path > 0.012) {
			t.Errorf("at %v s the path of a full link loses %v, want 0.01 as before", s, l.Path)
		}
	})
}

// TestLossAtTheSendingPort checks that packets which the sending port has dropped count as its
// queue's loss, because they never entered the link.
func TestLossAtTheSendingPort(t *testing.T) {
	table := New(Options{})
	var l Load
	for i := range 10 {
		s, age := float64(5*i), time.Minute+time.Duration(i)*5*time.Second
		table.Observe(sample(a, s, 0, age, Counters{TxPackets: uint64(900 * i), TxDropped: uint64(100 * i)}))
		table.Observe(sample(b, s, 0, age, Counters{RxPackets: uint64(900 * i)}))
		table.CompareEnds([]topology.Link{link})
		l = table.Load(link)
	}
	if l.Path != 0 || !near(l.Queue, 0.1) {
		t.Errorf("the path loses %v and the queue %v, want 0 and 0.1", l.Path, l.Queue)
	}
}

// TestLateReadingsAreNoLoss checks that the error of late answers does not count as loss: a busy
// switch answers late, and has read its counters at any time before.
func TestLateReadingsAreNoLoss(t *testing.T) {
	table := New(Options{})
	for i := range 24 {
		s, age := float64(5*i), time.Minute+time.Duration(i)*5*time.Second
		late := time.Duration(0)
		if i == 8 || i == 15 {
			late = 300 * time.Millisecond
		}
		sent := uint64(2000 * (s + late.Seconds()))
		table.Observe(sample(a, s, late, age, Counters{TxPackets: sent}))
		table.Observe(sample(b, s, 0, age, Counters{RxPackets: uint64(2000 * s)}))
		table.CompareEnds([]topology.Link{link})
		if l := table.Load(link); l.Queue != 0 || l.Path != 0 {
			t.Errorf("at %v s the path loses %v and queues %v", s, l.Path, l.Queue)
		}
	}
}
