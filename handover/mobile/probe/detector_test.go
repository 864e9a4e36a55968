package probe

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-net/sluice/handover/mobile/datapath"
)

// simulated is a detector by a clock of its own, on a way that loses packets, under a
// stream from the device of one packet a millisecond.
type simulated struct {
	*detector
	now     time.Time
	rtt     time.Duration
	loss    float64
	random  *rand.Rand
	answers []sentProbe // on their way, with when they come
	traffic datapath.Traffic
	number  uint16
	idle    bool // no stream
}

func simulate(rtt time.Duration, loss float64) *simulated {
	return &simulated{
		detector: newDetector(800*time.Millisecond, 20), now: time.Unix(1e9, 0),
		rtt: rtt, loss: loss, random: rand.New(rand.NewPCG(1, 2)),
	}
}

// run lets time pass, or until the way is taken for dead.
func (s *simulated) run(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end) && !s.dead; s.now = s.now.Add(time.Millisecond) {
		if !s.idle {
			s.traffic.Sent++
		}
		for len(s.answers) > 0 && !s.answers[0].at.After(s.now) {
			s.answered(s.now, s.answers[0].number, true)
			s.answers = s.answers[1:]
		}
		if s.expected.After(s.now) {
			continue
		}
		s.look(s.now, s.traffic)
		for {
			probe, _ := s.next(s.now)
			if !probe {
				break
			}
			s.number++
			s.sent(s.now, s.number)
			if s.random.Float64() >= s.loss {
				s.answers = append(s.answers, sentProbe{s.number, s.now.Add(s.rtt)})
			}
		}
	}
}

// TestLossIsNoDeath has ways lose probes at random, and be slow: they stay alive.
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
		if s.run(10 * time.Minute); s.dead {
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

// A process that was held up finds its answers late: that is no death.
func TestHeldUp(t *testing.T) {
	s := simulate(5*time.Millisecond, 0)
	s.run(time.Second)
	for s.row == 0 {
		s.run(time.Millisecond)
	}
	s.loss, s.answers = 1, nil
	s.run(3*again + 3*time.Millisecond) // all probes of the row are out
	if s.row != leastInRow || s.dead {
		t.Fatalf("%d in a row, dead %v", s.row, s.dead)
	}
	s.now = s.now.Add(300 * time.Millisecond)
	if s.run(time.Millisecond); s.dead {
		t.Error("dead, although the process was held up")
	}
	if s.run(time.Second); !s.dead {
		t.Error("it was held up once, and spares the way for ever")
	}
}

// A way whose deaths are false alarms, because it stalls for longer than others do, is
// given more time, and less again when it has been calm.
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

// On a busy machine everything stands still for some tenths of a second now and then.
// The second time this is no death any more.
func TestStallsAreLearned(t *testing.T) {
	for _, stall := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		s := simulate(5*time.Millisecond, 0)
		deaths := 0
		for range 20 {
			s.run(3 * time.Second)
			s.rtt = stall // what is sent now is answered when the machine goes on
			end := s.now.Add(stall)
			for s.now.Before(end) {
				if s.run(end.Sub(s.now)); s.dead {
					deaths++
					s.now = end
					s.answered(s.now, s.number, true)
				}
			}
			s.rtt, s.answers = 5*time.Millisecond, nil
			s.hear(s.now)
		}
		if deaths > 2 {
			t.Errorf("of 20 times that all stood still for %v, %d were taken for deaths", stall, deaths)
		}
		s.run(time.Second)
		died := s.now
		s.loss, s.answers = 1, nil
		if s.run(10 * time.Second); !s.dead || s.now.Sub(died) > 600*time.Millisecond {
			t.Errorf("after that a death is noticed after %v: %v", s.now.Sub(died), s.dead)
		}
	}
}

// One answer that came late does not delay the notice of a death long after.
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

// What the datapath says of when it last heard counts, not when it was asked: the first
// probe does not wait for longer because the look came late.
func TestQuietCounts(t *testing.T) {
	s := simulate(5*time.Millisecond, 0)
	s.run(time.Second)
	for s.row > 0 {
		s.run(time.Millisecond)
	}
	s.traffic.Heard++
	s.look(s.now, s.traffic)
	s.now = s.now.Add(lookBusy)
	s.traffic.Heard++
	s.traffic.Quiet = 15 * time.Millisecond
	s.look(s.now, s.traffic)
	if probe, wake := s.next(s.now); probe || wake.Sub(s.now) > 5*time.Millisecond {
		t.Errorf("probe %v, looked again in %v", probe, wake.Sub(s.now))
	}
}

// Without traffic an answer is waited for before the next probe.
func TestIdleProbes(t *testing.T) {
	s := simulate(30*time.Millisecond, 0)
	s.idle = true
	s.run(10 * time.Second)
	before := s.number
	if s.run(10 * time.Second); s.number-before > 13 {
		t.Errorf("%d probes in 10 s", s.number-before)
	}
}
