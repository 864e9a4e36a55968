package pathrate

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// link is a fluid model of a bottleneck. What is sent waits in its queue, leaves at its rate, and
// is known to the sender a round trip and a queueing time after it was sent.
type link struct {
	rate   float64 // bytes a second
	rtt    time.Duration
	buffer float64 // bytes

	detour time.Duration // by which the path has become longer, unknown to a sender that keeps the smallest round trip
	jitter time.Duration // by which round trips differ, at most

	now       time.Duration
	queued    float64
	sent      float64
	dropped   float64
	delivered float64
	later     []float64 // delivered bytes, by the millisecond in which they left
	queues    []float64 // bytes in the queue at that time
	most      float64   // largest queue
}

const step = time.Millisecond

// pass simulates a millisecond in which the given bytes are sent, beside other traffic.
func (l *link) pass(bytes, others float64) {
	l.now += step
	l.sent += bytes
	all := bytes + others
	l.queued += all
	out := min(l.queued, l.rate*step.Seconds())
	l.queued -= out
	if l.queued > l.buffer {
		l.dropped += l.queued - l.buffer
		l.queued = l.buffer
	}
	l.most = max(l.most, l.queued)
	if all == 0 {
		all = 1
	}
	l.later, l.queues = append(l.later, out*bytes/all), append(l.queues, l.queued)
	if n := int(l.rtt / step); len(l.later) > n {
		l.delivered += l.later[len(l.later)-1-n]
	}
}

func (l *link) sample(idle bool) Sample {
	s := Sample{At: l.now, Delivered: uint64(l.delivered), Lost: uint64(l.dropped), MinRTT: l.rtt, RTT: l.rtt, Idle: idle}
	if n := len(l.queues) - 1 - int(l.rtt/step); n >= 0 {
		s.RTT += time.Duration(l.queues[n] / l.rate * float64(time.Second))
	}
	s.RTT += l.detour
	if l.jitter > 0 {
		s.RTT += time.Duration(l.now.Nanoseconds() * 7919 % l.jitter.Nanoseconds())
	}
	return s
}

// run sends at the control's pace for a time, beside other traffic.
func (l *link) run(c *Control, d time.Duration, others float64) {
	every := max(l.rtt/8, 5*time.Millisecond)
	for end := l.now + d; l.now < end; {
		l.pass(c.Pace()*step.Seconds(), others*step.Seconds())
		if l.now%every < step {
			c.Update(l.sample(false))
		}
	}
}

// rest sends nothing for a time. idle tells the control whether there is nothing to send.
func (l *link) rest(c *Control, d time.Duration, idle bool) {
	every := max(l.rtt/8, 5*time.Millisecond)
	for end := l.now + d; l.now < end; {
		l.pass(0, 0)
		if l.now%every < step {
			c.Update(l.sample(idle))
		}
	}
}

func newLink(mbit float64, rtt time.Duration) *link {
	rate := mbit * 1e6 / 8
	return &link{rate: rate, rtt: rtt, buffer: max(rate*rtt.Seconds(), rate*0.02)}
}

func within(t *testing.T, what string, got, want, by float64) {
	t.Helper()
	if math.Abs(got-want) > by*want {
		t.Errorf("%s is %.1f Mbit/s, want %.1f within %.0f %%", what, got*8/1e6, want*8/1e6, 100*by)
	}
}

var links = []struct {
	mbit float64
	rtt  time.Duration
}{{300, 150 * time.Millisecond}, {1000, 20 * time.Millisecond}, {1000, 200 * time.Millisecond}, {40, 300 * time.Millisecond}, {100, 10 * time.Millisecond}}

// TestFind checks that the rate of an unknown path is found without a drop.
func TestFind(t *testing.T) {
	for _, x := range links {
		l := newLink(x.mbit, x.rtt)
		c := New(0, 0, false)
		l.run(c, 20*x.rtt+time.Second, 0)
		within(t, "the rate", c.Rate(), l.rate, 0.03)
		if l.dropped > 0.02*l.sent {
			t.Errorf("%v Mbit/s, %v: %.0f bytes dropped, most queued %.2f of the buffer", x.mbit, x.rtt, l.dropped, l.most/l.buffer)
		}
		if !c.Sure() {
			t.Error("the rate has not shown itself")
		}
		before, dropped, at := l.sent, l.dropped, l.now
		l.run(c, 30*time.Second, 0)
		within(t, "what is sent", (l.sent-before)/(l.now-at).Seconds(), l.rate, 0.04)
		if l.dropped > dropped {
			t.Errorf("%v Mbit/s, %v: %.0f bytes dropped when its rate was held", x.mbit, x.rtt, l.dropped-dropped)
		}
	}
}

// TestRegainsRate checks that a path that was slower for a while is used fully soon after,
// although growth had been in vain for long before.
func TestRegainsRate(t *testing.T) {
	l := newLink(300, 150*time.Millisecond)
	c := New(l.rate, 0, false)
	l.run(c, time.Minute, 0)
	rate := l.rate
	l.rate = 0.7 * rate
	l.run(c, 2500*time.Millisecond, 0)
	l.rate = rate
	l.run(c, 6*time.Second, 0)
	within(t, "the rate", c.Rate(), rate, 0.05)
}

// TestTry checks that a known rate is used at once, and that a wrong one is corrected soon.
func TestTry(t *testing.T) {
	for _, x := range links {
		for _, wrong := range []float64{0.25, 0.5, 1, 2} {
			l := newLink(x.mbit, x.rtt)
			c := New(wrong*l.rate, 0, false)
			l.run(c, 2*x.rtt, 0)
			if want := min(0.9*wrong, 0.9) * l.rate * 2 * x.rtt.Seconds(); l.sent < want {
				t.Errorf("%v times the rate: %.0f bytes sent at first, want %.0f", wrong, l.sent, want)
			}
			l.run(c, 18*x.rtt+time.Second, 0)
			within(t, "the rate", c.Rate(), l.rate, 0.03)
			if wrong <= 1 && l.dropped > 0.01*l.sent {
				t.Errorf("%v times the rate: %.0f bytes of %.0f dropped", wrong, l.dropped, l.sent)
			}
		}
	}
}

// TestOverestimated checks that a rate that is a little too high is not remembered.
func TestOverestimated(t *testing.T) {
	for _, x := range links {
		for _, wrong := range []float64{1.08, 1.16} {
			l := newLink(x.mbit, x.rtt)
			c := New(wrong*l.rate, 0, false)
			l.run(c, 10*time.Second, 0)
			rate, _ := c.Known()
			within(t, "the remembered rate", rate, l.rate, 0.04)
		}
	}
}

// TestSlowerLink checks that the lower rate of a link is remembered that has become slower during a
// transfer.
func TestSlowerLink(t *testing.T) {
	for _, x := range links {
		for _, factor := range []float64{0.3, 0.5, 0.7} {
			l := newLink(x.mbit, x.rtt)
			c := New(l.rate, 0, false)
			l.run(c, 3*time.Second, 0)
			l.rate *= factor
			l.run(c, contestedFor+5*time.Second+30*x.rtt, 0)
			rate, doubtful := c.Known()
			if within(t, "the remembered rate", rate, l.rate, 0.16); doubtful {
				t.Errorf("%.0f Mbit/s, %v: the rate is doubtful after it has fallen to a share of %v", x.mbit, x.rtt, factor)
			}
		}
	}
}

// TestSlowerTwice checks that a rate that was doubtful already is given up when the path shows a
// lower one again, although others send as well.
func TestSlowerTwice(t *testing.T) {
	for _, x := range links {
		l := newLink(x.mbit, x.rtt)
		c := New(2*l.rate, 0, true)
		l.run(c, 5*time.Second+10*x.rtt, 0.2*l.rate)
		rate, doubtful := c.Known()
		if rate > 1.05*l.rate || doubtful {
			t.Errorf("%.0f Mbit/s, %v: %.0f Mbit/s is remembered, doubtful: %v", x.mbit, x.rtt, rate*8/1e6, doubtful)
		}
	}
}

// TestAfterRest checks that a rate is judged by what is delivered of the bytes sent since the last
// rest.
func TestAfterRest(t *testing.T) {
	for _, x := range links {
		for _, wrong := range []float64{0.5, 1, 2} {
			l := newLink(x.mbit, x.rtt)
			c := New(wrong*l.rate, 0, false)
			for range 200 {
				l.pass(0, 0)
				if l.now%(5*time.Millisecond) == 0 {
					c.Update(l.sample(true))
				}
			}
			l.run(c, 20*x.rtt+time.Second, 0)
			within(t, "the rate after a rest", c.Rate(), l.rate, 0.05)
			for i := range 20 { // an end host that pauses now and then
				c.Update(l.sample(i%2 == 0))
				l.run(c, 50*time.Millisecond, 0)
			}
			within(t, "the rate with rests", c.Rate(), l.rate, 0.05)
		}
	}
}

// TestSlowPath checks that a path that is slower than the smallest limit is known as it is.
func TestSlowPath(t *testing.T) {
	for _, known := range []float64{0, 0.5, 1, 2} {
		l := newLink(1, 600*time.Millisecond)
		c := New(known*l.rate, 0, false)
		within(t, "the rate before", c.Rate(), known*l.rate, 0.01)
		l.run(c, 30*time.Second, 0)
		within(t, "the rate", c.Rate(), l.rate, 0.05)
		within(t, "the pace", c.Pace(), minPace, 0.01)
	}
}

// TestDoubtful checks that a doubtful rate is tried at half.
func TestDoubtful(t *testing.T) {
	l := newLink(300, 150*time.Millisecond)
	c := New(l.rate, 0, true)
	within(t, "the pace", c.Pace(), l.rate/2, 0.01)
	l.run(c, 3*time.Second, 0)
	within(t, "the rate", c.Rate(), l.rate, 0.03)
}

// TestLinkChanges checks that the pace follows a link whose rate changes.
func TestLinkChanges(t *testing.T) {
	for _, x := range links {
		for _, factor := range []float64{0.3, 0.7, 2, 5} {
			l := newLink(x.mbit, x.rtt)
			c := New(l.rate, 0, false)
			l.run(c, 5*time.Second, 0)
			l.rate *= factor
			l.run(c, 20*time.Second+20*x.rtt, 0)
			within(t, "the rate", c.Rate(), l.rate, 0.15)
			before, at := l.sent, l.now
			l.run(c, 5*time.Second, 0)
			within(t, "what is sent", (l.sent-before)/(l.now-at).Seconds(), l.rate, 0.1)
		}
	}
}

// TestOthers checks that other traffic keeps its rate, up to half of the link, and that the path is
// filled again when that traffic ends.
func TestOthers(t *testing.T) {
	for _, x := range links {
		for _, share := range []float64{0.1, 0.3, 0.5} {
			l := newLink(x.mbit, x.rtt)
			c := New(l.rate, 0, false)
			l.run(c, 5*time.Second, 0)
			l.run(c, 10*time.Second, share*l.rate)
			before, dropped, at := l.sent, l.dropped, l.now
			l.run(c, 10*time.Second, share*l.rate)
			within(t, "what is sent beside others", (l.sent-before)/(l.now-at).Seconds(), (1-share)*l.rate, 0.15)
			if l.dropped > dropped {
				t.Errorf("%v Mbit/s, %v: %.0f bytes dropped beside others with %v", x.mbit, x.rtt, l.dropped-dropped, share)
			}
			l.run(c, 20*time.Second, 0)
			within(t, "the rate", c.Rate(), l.rate, 0.04)
		}
	}
}

// TestRestlessPath checks that a path is used although it has become longer, or its round trips
// always differ.
func TestRestlessPath(t *testing.T) {
	for _, x := range links {
		l := newLink(x.mbit, x.rtt)
		c := New(l.rate, 0, false)
		l.run(c, 5*time.Second, 0)
		l.detour = 40 * time.Millisecond
		rate := l.rate
		l.rate = 1 // the old path is down
		l.run(c, time.Second, 0)
		l.rate, l.queued = rate, 0
		l.run(c, 60*x.rtt+20*time.Second, 0)
		before, at := l.sent, l.now
		l.run(c, 10*time.Second, 0)
		within(t, "what is sent on a longer way", (l.sent-before)/(l.now-at).Seconds(), l.rate, 0.1)

		c, before, at = c.Again(false), l.sent, l.now
		l.run(c, time.Second+10*x.rtt, 0)
		within(t, "what is sent on a longer way after a rest", (l.sent-before)/(l.now-at).Seconds(), l.rate, 0.1)

		l = newLink(x.mbit, x.rtt)
		l.jitter = 15 * time.Millisecond
		c = New(0, 0, false)
		l.run(c, 60*x.rtt+20*time.Second, 0)
		before, at = l.sent, l.now
		l.run(c, 10*time.Second, 0)
		within(t, "what is sent on a restless way", (l.sent-before)/(l.now-at).Seconds(), l.rate, 0.25)
	}
}

// TestNoQueue checks that machines that are late for a while, and segments that wait for each
// other, do not count as a queue.
func TestNoQueue(t *testing.T) {
	for name, late := range map[string]Sample{
		"machines": {RTT: 8 * time.Millisecond},
		"segments": {RTT: 13 * time.Millisecond, Grain: 15 * time.Millisecond},
	} {
		l := newLink(150, 54*time.Millisecond)
		c := New(0, 0, false)
		for l.now < 10*time.Second {
			if l.pass(c.Pace()*step.Seconds(), 0); l.now%(7*time.Millisecond) == 0 {
				s := l.sample(false)
				s.Grain = late.Grain
				if l.now%(150*time.Millisecond) < 60*time.Millisecond {
					s.RTT += late.RTT
				}
				c.Update(s)
			}
		}
		within(t, name+": the rate", c.Rate(), l.rate, 0.15)
	}
}

// TestLoadedMachine checks that longer round trips on a loaded machine do not end the search,
// however little is sent.
func TestLoadedMachine(t *testing.T) {
	for _, x := range links {
		l := newLink(x.mbit, x.rtt)
		c := New(0, 0, false)
		every := max(l.rtt/8, 5*time.Millisecond)
		for end := 3*time.Second + 10*x.rtt; l.now < end; {
			if l.pass(c.Pace()*step.Seconds(), 0); l.now%every < step {
				s := l.sample(false)
				if l.delivered > 0 {
					s.RTT += max(minQueue, min(x.rtt/5, maxJitter), x.rtt/16) * 5 / 4
				}
				c.Update(s)
			}
		}
		within(t, "the rate", c.Rate(), l.rate, 0.15)
		if l.dropped > 0.02*l.sent {
			t.Errorf("%v Mbit/s, %v: %.1f %% dropped", x.mbit, x.rtt, 100*l.dropped/l.sent)
		}
	}
}

// TestManyConnections checks that a standing queue is noticed although there are so many
// connections that the segments of each are rare.
func TestManyConnections(t *testing.T) {
	for _, x := range links {
		l := newLink(x.mbit, x.rtt)
		c := New(0, 0, false)
		for every := max(l.rtt/8, 5*time.Millisecond); l.now < 20*time.Second; {
			if l.pass(c.Pace()*step.Seconds(), 0); l.now%every < step {
				s := l.sample(false)
				s.Grain = time.Second
				c.Update(s)
			}
		}
		within(t, "the rate", c.Rate(), l.rate, 0.15)
		if l.dropped > 0.02*l.sent {
			t.Errorf("%.0f Mbit/s, %v: %.1f %% dropped", x.mbit, x.rtt, 100*l.dropped/l.sent)
		}
	}
}

// TestAnySamples checks that whatever the samples are, the pace is finite and positive, and limited by
// what was delivered: the rate is not taken for more than was known at first or has been delivered,
// and the pace exceeds that by no more than growing needs.
func TestAnySamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := rapid.Float64Range(0, 1e10).Draw(t, "rate")
		c := New(known, rapid.Float64Range(0, 1e10).Draw(t, "shown"), rapid.Bool().Draw(t, "doubtful"))
		first, best := c.Pace(), 0.0
		trip := rapid.Int64Range(1e6, 3e8).Draw(t, "trip")
		any := rapid.Bool().Draw(t, "any")
		var s Sample
		var taken []Sample
		for range rapid.IntRange(50, 200).Draw(t, "samples") {
			if any {
				s.At += time.Duration(rapid.Int64Range(-1e6, 1e9).Draw(t, "passed"))
				s.MinRTT = time.Duration(rapid.Int64Range(-1, 1e9).Draw(t, "least"))
				s.RTT = s.MinRTT + time.Duration(rapid.Int64Range(-1e6, 1e9).Draw(t, "more"))
				s.Grain = time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "grain"))
			} else {
				s.At += time.Duration(rapid.Int64Range(trip/10, trip).Draw(t, "passed"))
				s.MinRTT = time.Duration(trip)
				s.RTT = s.MinRTT + time.Duration(rapid.SampledFrom([]int64{0, trip / 8, trip}).Draw(t, "more"))
			}
			s.Delivered += rapid.SampledFrom([]uint64{0, 1e4, 1e6, 1e8}).Draw(t, "delivered")
			s.Lost += rapid.SampledFrom([]uint64{0, 1e4, 1e7}).Draw(t, "lost")
			s.Idle = rapid.IntRange(0, 9).Draw(t, "idle") == 0
			c.Update(s)
			if n := len(taken); n == 0 || s.At > taken[n-1].At {
				for _, x := range taken {
					if passed := s.At - x.At; passed >= minSpan {
						best = max(best, float64(s.Delivered-x.Delivered)/passed.Seconds())
					}
				}
				taken = append(taken, s)
			}
			if c.Rate() > max(known, best, minRate) {
				t.Fatalf("the rate is taken for %v: %v were known, and at most %v delivered", c.Rate(), known, best)
			}
			if p := c.Pace(); !(p > 0) || p > max(first, initialPace, findAhead*best, growFirst*max(known, minRate)) {
				t.Fatalf("the pace is %v in %v: at first it was %v, %v were known, and at most %v delivered", p, c.Phase(), first, known, best)
			}
			if len(c.samples) > 10_000 {
				t.Fatal("samples are not forgotten")
			}
		}
	})
}

// TestGrowthAfterPause checks that a transfer after a short pause finds out soon that the path
// carries more than before, although its first bytes arrive late: growth that begins before they
// can be measured would end in vain, and delay the next attempt.
func TestGrowthAfterPause(t *testing.T) {
	for _, x := range links {
		l := newLink(x.mbit, x.rtt)
		l.rate /= 2
		c := New(l.rate, 0, false)
		l.run(c, 14*max(x.rtt, minSpan), 0)
		l.rest(c, max(5*x.rtt, 100*time.Millisecond), true)
		l.rate *= 2
		l.rest(c, x.rtt, false) // the connections have bytes to send, but are slow to begin
		l.run(c, 12*max(x.rtt, minSpan), 0)
		if want := 0.9 * l.rate; c.Rate() < want {
			t.Errorf("%v Mbit/s, %v: the rate is %.1f Mbit/s 12 spans after a pause, want at least %.1f", x.mbit, x.rtt, c.Rate()*8/1e6, want*8/1e6)
		}
	}
}

// TestSlowerAfterPause checks that the pace follows at once when the path has become slower during a
// pause, so that not much more than a round trip's data is dropped.
func TestSlowerAfterPause(t *testing.T) {
	for _, x := range links {
		l := newLink(x.mbit, x.rtt)
		c := New(l.rate, 0, false)
		l.run(c, 14*max(x.rtt, minSpan), 0)
		l.rest(c, max(5*x.rtt, 100*time.Millisecond), true)
		l.rate, l.buffer = l.rate/2, l.buffer/2
		dropped := l.dropped
		l.run(c, 30*max(x.rtt, minSpan), 0)
		if most := 3 * l.rate * max(x.rtt, minSpan).Seconds(); l.dropped-dropped > most {
			t.Errorf("%v Mbit/s, %v: %.0f bytes dropped, want at most %.0f", x.mbit, x.rtt, l.dropped-dropped, most)
		}
	}
}
