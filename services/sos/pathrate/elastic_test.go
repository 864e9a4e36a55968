package pathrate

import (
	"math"
	"testing"
	"time"
)

// cubic is a competitor that fills any queue, as RFC 9438 describes.
type cubic struct {
	window, most float64 // bytes
	since        time.Duration
	dropped      float64
}

const segment = 1448

// rate returns its present rate in bytes a second.
func (x *cubic) rate(l *link) float64 {
	rtt := l.rtt.Seconds() + l.queued/l.rate
	if l.dropped > x.dropped && l.now-x.since > l.rtt { // at most one loss counts in a round trip
		x.most, x.window, x.since = x.window, 0.7*x.window, l.now
	}
	x.dropped = l.dropped
	t := (l.now - x.since).Seconds()
	k := math.Cbrt(x.most / segment * 0.3 / 0.4)
	x.window = max(x.window, segment*0.4*math.Pow(t-k, 3)+x.most)
	return x.window / rtt
}

func newCubic(l *link) *cubic {
	return &cubic{window: 10 * segment, most: l.rate * l.rtt.Seconds(), since: l.now, dropped: l.dropped}
}

// beside sends at the control's pace beside a competitor.
func (l *link) beside(c *Control, other *cubic, d time.Duration) {
	every := max(l.rtt/8, 5*time.Millisecond)
	for end := l.now + d; l.now < end; {
		l.pass(c.Pace()*step.Seconds(), other.rate(l)*step.Seconds())
		if l.now%every < step {
			c.Update(l.sample(false))
		}
	}
}

// TestLinkChangesBesideOthers checks that the new rate of a link that becomes slower beside a
// competitor is used. It is also known, unless the competitor leaves at that moment: then it becomes
// known only after a rest.
func TestLinkChangesBesideOthers(t *testing.T) {
	for _, x := range links {
		for _, least := range []float64{0.25, 0.5} {
			for _, stay := range []time.Duration{0, 20 * time.Second} {
				l := newLink(x.mbit, x.rtt)
				c := New(l.rate, 0, false)
				c.SetMinShare(least)
				l.run(c, 5*time.Second, 0)
				other := newCubic(l)
				l.beside(c, other, 20*time.Second)
				l.rate *= 0.3
				l.beside(c, other, stay)
				l.run(c, 20*time.Second+20*x.rtt, 0)
				before, at := l.sent, l.now
				l.run(c, 5*time.Second, 0)
				within(t, "what is sent", (l.sent-before)/(l.now-at).Seconds(), l.rate, 0.15)
				if stay > 0 && c.Rate() > 1.5*l.rate {
					t.Errorf("%v Mbit/s, %v, down to %v, others for %v: a rate of %.1f Mbit/s is taken for %.1f", x.mbit, x.rtt, least, stay, l.rate*8/1e6, c.Rate()*8/1e6)
				}
			}
		}
	}
}

// TestPolicer checks a policer, which drops the excess and makes no queue.
func TestPolicer(t *testing.T) {
	l := newLink(300, 150*time.Millisecond)
	l.buffer = l.rate * 0.003
	c := New(l.rate, 0, false)
	l.run(c, 5*time.Second, 0)
	l.rate *= 0.5
	l.run(c, 20*time.Second, 0)
	before, at := l.sent, l.now
	l.run(c, 20*time.Second, 0)
	within(t, "what is sent", (l.sent-before)/(l.now-at).Seconds(), l.rate, 0.15)
}

// TestFromNextToNothing checks that a path that was known for a very small rate is found again as
// fast as an unknown one.
func TestFromNextToNothing(t *testing.T) {
	l := newLink(300, 150*time.Millisecond)
	c := New(1e3, 0, false)
	l.run(c, 4*time.Second, 0)
	within(t, "the rate", c.Rate(), l.rate, 0.1)
}

// TestElasticOthers checks that the path's rate is kept beside a competitor that keeps the queue
// full: the pace falls to a share of that rate, and not further each time.
func TestElasticOthers(t *testing.T) {
	for _, x := range links {
		for _, least := range []float64{0.25, 0.5} {
			l := newLink(x.mbit, x.rtt)
			c := New(l.rate, 0, false)
			c.SetMinShare(least)
			l.run(c, 5*time.Second, 0)
			other := newCubic(l)
			l.beside(c, other, 60*time.Second)
			before, at := l.sent, l.now
			l.beside(c, other, 120*time.Second)
			sent := (l.sent - before) / (l.now - at).Seconds()
			if c.Rate() < 0.4*l.rate || sent < 0.8*least*0.4*l.rate {
				t.Errorf("%v Mbit/s, %v, down to %v: the rate is taken for %.1f Mbit/s, and %.1f are sent", x.mbit, x.rtt, least, c.Rate()*8/1e6, sent*8/1e6)
			}
			l.run(c, 30*time.Second, 0)
			within(t, "the rate, alone again", c.Rate(), l.rate, 0.05)
		}
	}
}

// TestPoliteOnShortPaths checks that a competitor has at least 80 % of its half beside a pace that
// gives way, also on short paths, where a full queue soon looks like a longer path, and that the pace
// is kept to its share of the rate.
func TestPoliteOnShortPaths(t *testing.T) {
	for _, x := range []struct {
		mbit float64
		rtt  time.Duration
	}{
		{50, 10 * time.Millisecond},
		{100, 5 * time.Millisecond},
		{100, 10 * time.Millisecond},
		{100, 20 * time.Millisecond},
		{200, 10 * time.Millisecond},
		{1000, 10 * time.Millisecond},
		{1000, 20 * time.Millisecond},
	} {
		for _, least := range []float64{0.25, 0.5} {
			l := newLink(x.mbit, x.rtt)
			c := New(l.rate, 0, false)
			c.SetMinShare(least)
			l.run(c, 5*time.Second, 0)
			other := newCubic(l)
			l.beside(c, other, 20*time.Second)
			before, at := l.delivered, l.now
			l.beside(c, other, 100*time.Second)
			ours := (l.delivered - before) / (l.now - at).Seconds() / l.rate
			if theirs := 1 - ours; theirs < 0.8/2 || ours < 0.65*least {
				t.Errorf("%v Mbit/s, %v, down to %v: %.0f %% are left to the competitor", x.mbit, x.rtt, least, 100*theirs)
			}
		}
	}
}

// TestCompetitionIsNotRemembered checks that what a path carries beside a competitor is not remembered
// for what it carries, whether the competitor comes later or is there first: unless that is found
// again, the earlier rate is kept for a while as a doubtful one.
func TestCompetitionIsNotRemembered(t *testing.T) {
	for _, x := range links {
		for _, least := range []float64{0.25, 0.5} {
			for _, first := range []bool{false, true} {
				l := newLink(x.mbit, x.rtt)
				c := New(l.rate, 0, false)
				c.SetMinShare(least)
				other := newCubic(l)
				if first {
					for l.now < 30*time.Second {
						l.pass(0, other.rate(l)*step.Seconds())
					}
				} else {
					l.run(c, 5*time.Second, 0)
				}
				other.since = l.now
				for i := range int(contestedFor / (100 * time.Millisecond)) {
					l.beside(c, other, 100*time.Millisecond)
					rate, doubtful := c.Known()
					if rate < 0.8*l.rate || c.Rate() < 0.8*l.rate && !doubtful {
						t.Errorf("%v Mbit/s, %v, down to %v, competitor first: %v: after %d.%d s %.1f Mbit/s are remembered, doubtful: %v, rate %.1f, %v",
							x.mbit, x.rtt, least, first, i/10, i%10, rate*8/1e6, doubtful, c.Rate()*8/1e6, c.Phase())
						break
					}
				}
				l.run(c, 30*time.Second, 0)
				rate, doubtful := c.Known()
				within(t, "the rate, alone again", rate, l.rate, 0.05)
				if doubtful {
					t.Errorf("%v Mbit/s, %v, down to %v: the rate is doubtful, alone again", x.mbit, x.rtt, least)
				}
			}
		}
	}
}

// TestSlowerPathIsRemembered checks that the rate of a path that is slower than remembered is known at
// the end of the start, and that of one that has become slower at the end of the next.
func TestSlowerPathIsRemembered(t *testing.T) {
	for _, x := range links {
		for _, factor := range []float64{0.3, 0.5, 0.7} {
			l := newLink(x.mbit, x.rtt)
			known := func(c *Control, when string) {
				t.Helper()
				rate, doubtful := c.Known()
				within(t, "the rate "+when, rate, l.rate, 0.1)
				if doubtful {
					t.Errorf("%v Mbit/s, %v, %v of it: the rate is doubtful %s", x.mbit, x.rtt, factor, when)
				}
			}
			l.rate *= factor
			c := New(l.rate/factor, 0, false)
			l.run(c, 20*x.rtt+2*time.Second, 0)
			known(c, "that was remembered wrongly")

			l = newLink(x.mbit, x.rtt)
			c = New(l.rate, 0, false)
			l.run(c, 5*time.Second, 0)
			l.rate *= factor
			l.run(c, 20*time.Second, 0)
			within(t, "the rate", c.Rate(), l.rate, 0.15)
			rate, doubtful := c.Known()
			l.now, l.queued, l.later, l.queues = l.now+time.Minute, 0, nil, nil
			c = New(rate, c.Shown(), doubtful)
			l.run(c, 20*x.rtt+2*time.Second, 0)
			known(c, "of a path that has become slower")
		}
	}
}
