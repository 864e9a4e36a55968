package pathrate

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// site is two senders that share a link, and a controller that divides the link between them every
// second. own is the rate of each sender's own access, zero for no limit.
type site struct {
	*link
	own      float64
	declared float64
	estimate Link
	c        [2]*Control
	sends    [2]bool
	access   [2]float64 // bytes in the queues of the senders' accesses
	sent     [2]float64
	arrived  [2]float64
	history  [2][]float64
	rates    [2]float64 // smoothed rates of delivery
	last     [2]float64
	queued   [2]bool
	fast     bool // whether a sender has come or left since the last round
	// remembers holds whether a sender knew the rate when it began.
	remembers [2]bool
}

// round divides the link as the controller does.
func (x *site) round() {
	s := LinkSample{Queued: true}
	for i, c := range x.c {
		if x.sends[i] {
			s.Delivered += x.rates[i]
			s.Queued = s.Queued && x.queued[i]
			if c.Sure() {
				s.Known = max(s.Known, c.Rate())
			}
		}
		x.queued[i] = false
	}
	if !x.sends[0] || !x.sends[1] {
		for _, c := range x.c {
			c.RemoveLimit()
		}
		return
	}
	capacity, told := x.declared, x.declared
	if capacity == 0 {
		x.estimate.Update(s)
		capacity, told = x.estimate.Capacity(), x.estimate.Shown()
	}
	all := math.Inf(1)
	given := Divide([]float64{capacity}, []Sender{{[]int{0}, all}, {[]int{0}, all}})
	for i, c := range x.c {
		if x.remembers[i] {
			c.SetLimit(given[i], 0)
		} else {
			c.SetLimit(given[i], told)
		}
	}
}

// run sends for a time.
func (x *site) run(d time.Duration) {
	l := x.link
	every := max(l.rtt/8, 5*time.Millisecond)
	for end := l.now + d; l.now < end; {
		if x.fast || l.now%time.Second < step {
			x.fast = false
			x.round()
		}
		var s [2]float64
		for i, c := range x.c {
			if x.sends[i] {
				s[i] = c.Pace() * step.Seconds()
			}
			if x.own > 0 {
				x.access[i] += s[i]
				s[i] = min(x.access[i], x.own*step.Seconds())
				x.access[i] = min(x.access[i]-s[i], x.own*l.rtt.Seconds())
			}
			x.sent[i] += s[i]
		}
		all := s[0] + s[1]
		out := min(l.queued+all, l.rate*step.Seconds())
		l.pass(all, 0)
		for i, c := range x.c {
			v := 0.0
			if all > 0 {
				v = out * s[i] / all
			}
			x.history[i] = append(x.history[i], v)
			if n := int(l.rtt / step); len(x.history[i]) > n {
				x.arrived[i] += x.history[i][len(x.history[i])-1-n]
			}
			if l.now%every < step && x.sends[i] {
				sample := l.sample(false)
				sample.Delivered, sample.Lost = uint64(x.arrived[i]), uint64(l.dropped/2)
				if x.own > 0 {
					sample.RTT += time.Duration(x.access[i] / x.own * float64(time.Second))
				}
				c.Update(sample)
				x.rates[i] += 0.2 * ((x.arrived[i]-x.last[i])/every.Seconds() - x.rates[i])
				x.last[i] = x.arrived[i]
				x.queued[i] = x.queued[i] || c.Queued()
			}
		}
	}
}

// during returns what each sends in the time, in bytes a second.
func (x *site) during(d time.Duration) (a, b float64) {
	before := x.sent
	x.run(d)
	return (x.sent[0] - before[0]) / d.Seconds(), (x.sent[1] - before[1]) / d.Seconds()
}

func (x *site) begin(i int) { x.sends[i], x.fast, x.remembers[i] = true, true, x.c[i].Rate() > 0 }
func (x *site) end(i int)   { x.sends[i], x.fast, x.rates[i] = false, true, 0 }

func jain(a, b float64) float64 { return (a + b) * (a + b) / (2 * (a*a + b*b)) }

// TestShared checks that two senders of one link that a controller divides between them have equal
// shares, together fill the link, and do not take their shares for its rate, whatever they know of
// it when they begin, at once or one after the other.
func TestShared(t *testing.T) {
	for _, x := range links {
		for _, known := range []float64{0, 1} {
			for _, declared := range []bool{false, true} {
				for _, later := range []time.Duration{0, 10 * time.Second} {
					l := newLink(x.mbit, x.rtt)
					s := &site{link: l, c: [2]*Control{New(known*l.rate, 0, false), New(0, 0, false)}}
					if declared {
						s.declared = l.rate
					}
					name := func() string {
						return time.Duration(x.rtt).String() + ", at " + l.now.String()
					}
					s.begin(0)
					s.run(later)
					s.begin(1)
					if known > 0 || later > 0 || declared { // somebody knows the rate
						s.run(time.Second)
						if a, b := s.during(time.Second); b < 0.7*l.rate/2 {
							t.Errorf("%v Mbit/s, %s, known %v, declared %v, later %v: in its second second the new one sends %.0f %% of its half, the other %.0f %%", x.mbit, name(), known, declared, later, 200*b/l.rate, 200*a/l.rate)
						}
					}
					s.run(10*time.Second + 20*x.rtt)
					sent, dropped := l.sent, l.dropped
					a, b := s.during(30 * time.Second)
					if jain(a, b) < 0.95 || a+b < 0.93*l.rate || l.dropped-dropped > 0.02*(l.sent-sent) {
						t.Errorf("%v Mbit/s, %s, known %v, declared %v, later %v: %.0f and %.0f %% of the link, Jain %.3f, %.1f %% dropped", x.mbit, name(), known, declared, later,
							100*a/l.rate, 100*b/l.rate, jain(a, b), 100*(l.dropped-dropped)/(l.sent-sent))
					}
					for i, c := range s.c {
						within(t, "the rate that one knows", c.Rate(), l.rate, 0.1)
						if c.Sure() && c.Rate() < 0.9*l.rate {
							t.Errorf("%s: %d takes %.0f %% of the link for sure", name(), i, 100*c.Rate()/l.rate)
						}
					}
					s.end(1)
					s.run(time.Second)
					if a, _ := s.during(2 * time.Second); a < 0.8*l.rate {
						t.Errorf("%v Mbit/s, %s, known %v, declared %v, later %v: left alone it sends %.0f %% of the link", x.mbit, name(), known, declared, later, 100*a/l.rate)
					}
					s.run(20 * time.Second)
					within(t, "the rate, alone again", s.c[0].Rate(), l.rate, 0.05)
				}
			}
		}
	}
}

// TestSharedButNotFull checks that senders that share a link of unknown capacity, but are limited by
// their own accesses, are not held back for long.
func TestSharedButNotFull(t *testing.T) {
	l := newLink(1000, 50*time.Millisecond)
	s := &site{link: l, own: l.rate / 4}
	s.c = [2]*Control{New(s.own, 0, false), New(s.own, 0, false)}
	s.begin(0)
	s.run(5 * time.Second)
	s.begin(1)
	s.run(20 * time.Second)
	a, b := s.during(10 * time.Second)
	within(t, "what one sends", a, s.own, 0.1)
	within(t, "what the other sends", b, s.own, 0.1)
	for _, c := range s.c {
		within(t, "the rate that one knows", c.Rate(), s.own, 0.1)
	}
}

// TestSharedLinkChanges checks that the senders of a link follow its rate.
func TestSharedLinkChanges(t *testing.T) {
	for _, factor := range []float64{0.2, 0.6, 3} {
		l := newLink(300, 100*time.Millisecond)
		s := &site{link: l, c: [2]*Control{New(l.rate, 0, false), New(l.rate, 0, false)}}
		s.begin(0)
		s.begin(1)
		s.run(10 * time.Second)
		l.rate *= factor
		s.run(60 * time.Second)
		a, b := s.during(10 * time.Second)
		within(t, "what both send", min(a+b, l.rate), l.rate, 0.15)
		if jain(a, b) < 0.95 {
			t.Errorf("%v times the rate: %.0f and %.0f %% of the link", factor, 100*a/l.rate, 100*b/l.rate)
		}
		s.end(1)
		s.run(30 * time.Second)
		within(t, "the rate, alone again", s.c[0].Rate(), l.rate, 0.15)
	}
}

// TestLimitHolds checks that the pace never exceeds a limit, and that the known rate does not
// decrease as long as there is one, whatever the samples are.
func TestLimitHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New(rapid.Float64Range(0, 1e10).Draw(t, "rate"), 0, rapid.Bool().Draw(t, "doubtful"))
		var s Sample
		sure, rate := false, 0.0
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			limit := rapid.Float64Range(0, 1e10).Draw(t, "limit")
			if limit > 1e9 {
				c.SetLimit(limit, rapid.Float64Range(0, 1e10).Draw(t, "told"))
				sure, rate = c.Sure(), c.Rate()
			}
			s.At += time.Duration(rapid.Int64Range(1e6, 1e9).Draw(t, "passed"))
			s.Delivered += rapid.Uint64Range(0, 1e9).Draw(t, "delivered")
			s.MinRTT = time.Duration(rapid.Int64Range(1, 1e9).Draw(t, "least"))
			s.RTT = s.MinRTT + time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "more"))
			s.Idle = rapid.Bool().Draw(t, "idle")
			c.Update(s)
			if !c.Shared() {
				continue
			}
			if p := c.Pace(); p > max(c.limit, minPace) || !(p > 0) {
				t.Fatalf("the pace is %v, the limit %v", p, c.limit)
			}
			if c.Rate() < rate || c.Sure() && !sure {
				t.Fatalf("a rate of %v, sure %v, has become %v, sure %v", rate, sure, c.Rate(), c.Sure())
			}
		}
	})
}
