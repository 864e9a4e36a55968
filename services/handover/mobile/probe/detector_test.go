package probe

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
)

// simulated is a detector with a simulated clock, on a path that loses packets. A stream of one
// packet a millisecond leaves the device; other fields change that.
type simulated struct {
	*detector
	now     time.Time
	rtt     time.Duration
	loss    float64
	random  *rand.Rand
	answers []sentProbe // in flight, with the times of arrival
	traffic datapath.Traffic
	number  uint16
	idle    bool // only probes leave
	down    bool // a packet comes in each millisecond
	// dead names the directions that carry nothing.
	dead struct{ up, down bool }
}

const testInterval = 80 * time.Millisecond

func simulate(rtt time.Duration, loss float64) *simulated {
	s := &simulated{
		detector: newDetector(testInterval, 20), now: time.Unix(1e9, 0),
		rtt: rtt, loss: loss, random: rand.New(rand.NewPCG(1, 2)),
	}
	s.eager = true
	return s
}

// run lets time pass, or until the path is declared dead.
func (s *simulated) run(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end) && !s.detector.dead; s.now = s.now.Add(time.Millisecond) {
		if !s.idle {
			s.traffic.Sent++
		}
		if s.down && !s.dead.down {
			s.traffic.Heard++
		}
		for len(s.answers) > 0 && !s.answers[0].at.After(s.now) {
			if !s.dead.down {
				s.answered(s.now, s.answers[0].number, true)
			}
			s.answers = s.answers[1:]
		}
		if s.expected.After(s.now) && s.row > 0 {
			continue
		}
		s.observe(s.now, s.traffic)
		for {
			probe, _ := s.next(s.now)
			if !probe {
				break
			}
			s.number++
			s.sent(s.now, s.number)
			if s.random.Float64() >= s.loss && !s.dead.up {
				s.answers = append(s.answers, sentProbe{s.number, s.now.Add(s.rtt)})
			}
		}
	}
}

// TestLossIsNoDeath simulates slow paths that lose probes at random: they stay alive.
func TestLossIsNoDeath(t *testing.T) {
	for _, c := range []struct {
		rtt  time.Duration
		loss float64
	}{
		{0, 0},
		{5 * time.Millisecond, 0.01},
		{5 * time.Millisecond, 0.05},
		{30 * time.Millisecond, 0.1},
		{100 * time.Millisecond, 0},
		{100 * time.Millisecond, 0.05},
		{600 * time.Millisecond, 0},
	} {
		s := simulate(c.rtt, c.loss)
		if s.run(10 * time.Minute); s.detector.dead {
			t.Errorf("a round trip of %v, loss %v: dead after %v", c.rtt, c.loss, s.now.Sub(time.Unix(1e9, 0)))
		}
		if len(s.waiting) > 200 {
			t.Errorf("a round trip of %v, loss %v: %d probes are remembered", c.rtt, c.loss, len(s.waiting))
		}
		s.loss, s.answers = 1, nil
		died := s.now
		s.run(10 * time.Second)
		if limit := 140*time.Millisecond + 3*c.rtt; s.now.Sub(died) > limit {
			t.Errorf("a round trip of %v, loss %v: a death took %v to notice, more than %v", c.rtt, c.loss, s.now.Sub(died), limit)
		}
	}
}

// A delayed process reads its answers late: that is no death.
func TestHeldUp(t *testing.T) {
	s := simulate(5*time.Millisecond, 0)
	s.run(time.Second)
	for s.row == 0 {
		s.run(time.Millisecond)
	}
	s.loss, s.answers = 1, nil
	s.run(3*probeGap + 3*time.Millisecond) // all probes of the row are out
	if s.row != minInRow || s.detector.dead {
		t.Fatalf("%d in a row, dead %v", s.row, s.detector.dead)
	}
	s.now = s.now.Add(300 * time.Millisecond)
	if s.run(time.Millisecond); s.detector.dead {
		t.Error("dead, although the process was held up")
	}
	if s.run(time.Second); !s.detector.dead {
		t.Error("it was held up once, and spares the way for ever")
	}
}

// A path with false alarms, because it stalls for longer than others do, gets more time, and less
// again when it has been calm.
func TestFalseAlarms(t *testing.T) {
	s := simulate(5*time.Millisecond, 0)
	s.run(time.Second)
	stall := func() (took time.Duration) {
		for s.now.Sub(s.heard) > time.Millisecond { // just after an answer, each time
			s.run(time.Millisecond)
		}
		began := s.now
		s.loss = 1
		s.run(time.Second)
		took = s.now.Sub(began)
		s.loss = 0
		s.answered(s.now.Add(10*time.Millisecond), s.number, true)
		s.run(time.Second)
		return took
	}
	first := stall()
	for range 5 {
		stall()
	}
	if took := stall(); took < 2*first || took > 600*time.Millisecond {
		t.Errorf("after false alarms a death takes %v; it was %v", took, first)
	}
	s.run(2 * calmAfter)
	if more := stall() - first; more > 5*time.Millisecond {
		t.Errorf("long after false alarms a death takes %v more", more)
	}
}

// On a busy machine everything stalls for some tenths of a second now and then. The third time
// this no longer counts as a death.
func TestStallsAreLearned(t *testing.T) {
	for _, stall := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		s := simulate(5*time.Millisecond, 0)
		deaths := 0
		for range 20 {
			s.run(3 * time.Second)
			s.rtt = stall // probes sent now are answered when the machine continues
			end := s.now.Add(stall)
			for s.now.Before(end) {
				if s.run(end.Sub(s.now)); s.detector.dead {
					deaths++
					s.now = end
					s.answered(s.now, s.number, true)
				}
			}
			s.rtt, s.answers = 5*time.Millisecond, nil
			s.alive(s.now)
		}
		if deaths > 3 {
			t.Errorf("of 20 times that all stood still for %v, %d were taken for deaths", stall, deaths)
		}
		s.run(time.Second)
		died := s.now
		s.loss, s.answers = 1, nil
		if s.run(10 * time.Second); !s.detector.dead || s.now.Sub(died) > 600*time.Millisecond {
			t.Errorf("after that a death is noticed after %v: %v", s.now.Sub(died), s.detector.dead)
		}
	}
}

// A single late answer does not delay the detection of a death long after.
func TestLateAnswer(t *testing.T) {
	s := simulate(5*time.Millisecond, 0)
	s.run(time.Second)
	s.measured(400 * time.Millisecond)
	s.loss, s.answers = 1, nil
	died := s.now
	if s.run(time.Second); s.now.Sub(died) > 160*time.Millisecond {
		t.Errorf("noticed after %v", s.now.Sub(died))
	}
}

// The time at which the datapath last heard a packet counts, not the time of the reading: the
// first probe is not delayed by a late reading.
func TestQuietCounts(t *testing.T) {
	s := simulate(5*time.Millisecond, 0)
	s.run(time.Second)
	for s.row > 0 {
		s.run(time.Millisecond)
	}
	s.traffic.Heard++
	s.observe(s.now, s.traffic)
	s.now = s.now.Add(pollBusy)
	s.traffic.Heard++
	s.traffic.Quiet = 15 * time.Millisecond
	s.observe(s.now, s.traffic)
	if probe, wake := s.next(s.now); probe || wake.Sub(s.now) > 5*time.Millisecond {
		t.Errorf("probe %v, looked again in %v", probe, wake.Sub(s.now))
	}
}

// Without traffic the detector waits for an answer before the next probe.
func TestIdleProbes(t *testing.T) {
	s := simulate(20*time.Millisecond, 0)
	s.idle = true
	s.run(10 * time.Second)
	before := s.number
	if s.run(10 * time.Second); s.number-before > uint16(10*time.Second/testInterval)+1 {
		t.Errorf("%d probes in 10 s", s.number-before)
	}
}

// TestDeathsInTime lets each direction die under each kind of traffic, at each phase of the
// probes, and once more after the path has come back. 95 of 100 deaths are detected within 150 ms.
func TestDeathsInTime(t *testing.T) {
	for _, dead := range []struct{ up, down bool }{{true, false}, {false, true}, {true, true}} {
		for _, traffic := range []struct{ up, down bool }{{}, {up: true}, {down: true}, {true, true}} {
			for _, rtt := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond} {
				var first, again []time.Duration
				for phase := range testInterval / time.Millisecond {
					s := simulate(rtt, 0)
					s.idle, s.down = !traffic.up, traffic.down
					s.run(2*time.Second + phase*time.Millisecond)
					first = append(first, s.dies(t, dead))
					s.returns(t, 300*time.Millisecond)
					s.run(time.Second + phase*time.Millisecond)
					again = append(again, s.dies(t, dead))
				}
				for name, took := range map[string][]time.Duration{"": first, ", after a return": again} {
					slices.Sort(took)
					if p95 := took[len(took)*95/100]; p95 > 150*time.Millisecond {
						t.Errorf("dead %+v, traffic %+v, a round trip of %v%s: p95 %v, longest %v", dead, traffic, rtt, name, p95, took[len(took)-1])
					}
				}
			}
		}
	}
}

// dies lets directions die and returns how long the detection takes.
func (s *simulated) dies(t *testing.T, dead struct{ up, down bool }) time.Duration {
	t.Helper()
	s.dead = dead
	died := s.now
	if s.run(20 * time.Second); !s.detector.dead {
		t.Fatalf("dead %+v: not noticed in 20 s", dead)
	}
	return s.now.Sub(died)
}

// returns makes a dead path work again after a while.
func (s *simulated) returns(t *testing.T, after time.Duration) {
	t.Helper()
	s.now = s.now.Add(after)
	s.dead.up, s.dead.down, s.answers = false, false, nil
	s.number++
	s.sent(s.now, s.number)
	s.now = s.now.Add(s.rtt)
	if s.answered(s.now, s.number, true); s.detector.dead {
		t.Fatal("an answer does not end a death")
	}
}

// TestGrowingQueue fills a queue on the path: each answer takes longer than the one before.
// Packets come in, so the path is not dead.
func TestGrowingQueue(t *testing.T) {
	for _, idle := range []bool{false, true} {
		s := simulate(10*time.Millisecond, 0)
		s.idle, s.down = idle, true
		s.run(time.Second)
		for s.rtt < 500*time.Millisecond {
			s.run(time.Millisecond)
			s.rtt += time.Millisecond
			if s.detector.dead {
				t.Fatalf("nothing but probes leaves: %v: dead when the queue took %v", idle, s.rtt)
			}
		}
	}
}
