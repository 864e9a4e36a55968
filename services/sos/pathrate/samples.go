package pathrate

import "time"

// push adds a sample, and drops samples that are older than three spans.
func (c *Control) push(s Sample) {
	c.samples = append(c.samples, pacedSample{s, c.Pace()})
	n := 0
	for n < len(c.samples)-2 && s.At-c.samples[n+1].At >= 3*c.span() {
		n++
	}
	c.samples = c.samples[n:]
}

// span returns the time over which the delivered rate is measured.
func (c *Control) span() time.Duration {
	return max(minSpan, c.baseRTT())
}

// delivered returns the delivered rate over the given span before the last sample, or over the part
// of it in which data was sent without a pause, in bytes a second. It returns zero if that is too
// short to tell.
func (c *Control) delivered(span time.Duration) float64 {
	last := c.samples[len(c.samples)-1]
	first := last
	for i := len(c.samples) - 2; i >= 0 && c.samples[i].At >= c.busySince; i-- {
		first = c.samples[i]
		if last.At-first.At >= span {
			break
		}
	}
	if last.At-first.At < min(span, minSpan) {
		return 0
	}
	return float64(last.Delivered-first.Delivered) / (last.At - first.At).Seconds()
}

// previouslyDelivered returns the delivered rate over the span before the last one, in bytes a
// second; zero if it is not known.
func (c *Control) previouslyDelivered(span time.Duration) float64 {
	now := c.samples[len(c.samples)-1].At
	var last *pacedSample
	for i := len(c.samples) - 1; i >= 0; i-- {
		x := &c.samples[i]
		if last == nil && now-x.At >= span {
			last = x
		}
		if last != nil && last.At-x.At >= span {
			return float64(last.Delivered-x.Delivered) / (last.At - x.At).Seconds()
		}
	}
	return 0
}

// lost returns the rate of retransmitted bytes over the last span, in bytes a second.
func (c *Control) lost() float64 {
	last := c.samples[len(c.samples)-1]
	for i := len(c.samples) - 2; i >= 0; i-- {
		if d := last.At - c.samples[i].At; d >= c.span() {
			return float64(last.Lost-c.samples[i].Lost) / d.Seconds()
		}
	}
	return 0
}

// paceBefore returns the pace that was set d ago. The data that is delivered now was sent at about
// that pace if d is a round trip or two.
func (c *Control) paceBefore(d time.Duration) float64 {
	last := c.samples[len(c.samples)-1]
	for i := len(c.samples) - 1; i > 0; i-- {
		if last.At-c.samples[i].At >= d {
			return c.samples[i].pace
		}
	}
	return c.samples[0].pace
}

// belowPace reports whether less is delivered than was sent at the pace of two spans ago.
func (c *Control) belowPace(delivered float64) bool {
	return delivered > 0 && delivered < fallenShare*c.paceBefore(2*c.span())
}

// updateQueue updates the time since which the path has had a queue. A machine that is late for a
// moment makes the round trip longer, too, so only a queue that lasts counts.
func (c *Control) updateQueue(s Sample) {
	if s.RTT < c.base {
		c.base = s.RTT
	}
	base := c.baseRTT()
	grain := min(s.Grain, base/grainDivisor)
	lasts := base / 2
	if c.phase == PhaseFind || c.phase == PhaseTry { // in these phases the queue grows fast
		lasts = base / 4
	}
	lasts = max(lasts, smoothingGrains*grain)
	counts := max(minQueue, min(base/5, maxJitter), base/16, grain)
	c.mild = s.RTT <= base+mildQueues*counts
	switch {
	case s.RTT <= base+counts:
		if c.settle && c.queueSince != 0 && !c.Shared() {
			c.contested, c.settle = 0, false
		}
		c.highSince, c.queueSince = 0, 0
	case c.highSince == 0:
		c.highSince = s.At
	case c.queueSince == 0 && s.At-c.highSince >= lasts:
		c.queueSince = c.highSince
	}
}

// updateBase raises the base to the present round trip if that has stayed long for floorSpans,
// although less was sent: either the path has changed, or its queue is never empty.
func (c *Control) updateBase(s Sample) {
	if c.queueSince == 0 || s.At-c.queueSince < floorSpans*c.span() {
		return
	}
	c.base = s.RTT
	for _, l := range c.samples {
		c.base = min(c.base, l.RTT)
	}
	c.highSince, c.queueSince, c.settle = 0, 0, false
}

// rttsPassed returns the number of round trips since the previous sample, at most one.
func (c *Control) rttsPassed(s Sample) float64 {
	return min((s.At-c.samples[len(c.samples)-2].At).Seconds()/c.baseRTT().Seconds(), 1)
}

// carried returns the delivered rate while the path has a queue, but no more than the highest recent
// pace: data that has waited in a late machine arrives faster than the path carries it.
func (c *Control) carried() float64 {
	most := 0.0
	for _, l := range c.samples {
		most = max(most, l.pace)
	}
	return min(c.delivered(c.recent()), most)
}

// recent returns a span that is short enough to lie within the time since which the path has had a
// queue.
func (c *Control) recent() time.Duration { return max(minSpan, c.span()*3/4) }

// baseRTT returns the round trip with an empty queue.
func (c *Control) baseRTT() time.Duration { return max(c.base, c.samples[len(c.samples)-1].MinRTT) }
