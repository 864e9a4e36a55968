package pathrate

import "time"

// push keeps the looks of the last spans.
func (c *Control) push(s Sample) {
	c.looks = append(c.looks, look{s, c.Pace()})
	n := 0
	for n < len(c.looks)-2 && s.At-c.looks[n+1].At >= 3*c.span() {
		n++
	}
	c.looks = c.looks[n:]
}

// span is how long what is delivered is measured.
func (c *Control) span() time.Duration {
	return max(leastSpan, c.trip())
}

// delivered is the rate over the last span, or as much of it as there is of what was sent
// without a rest; zero if that is too little to tell.
func (c *Control) delivered(span time.Duration) float64 {
	last := c.looks[len(c.looks)-1]
	first := last
	for i := len(c.looks) - 2; i >= 0 && c.looks[i].At >= c.flow; i-- {
		first = c.looks[i]
		if last.At-first.At >= span {
			break
		}
	}
	if last.At-first.At < min(span, leastSpan) {
		return 0
	}
	return float64(last.Delivered-first.Delivered) / (last.At - first.At).Seconds()
}

// deliveredBefore is the rate over the span before the last one; zero if it is not known.
func (c *Control) deliveredBefore(span time.Duration) float64 {
	now := c.looks[len(c.looks)-1].At
	var last *look
	for i := len(c.looks) - 1; i >= 0; i-- {
		x := &c.looks[i]
		if last == nil && now-x.At >= span {
			last = x
		}
		if last != nil && last.At-x.At >= span {
			return float64(last.Delivered-x.Delivered) / (last.At - x.At).Seconds()
		}
	}
	return 0
}

// lost is how much was sent again over the last span, in bytes a second.
func (c *Control) lost() float64 {
	last := c.looks[len(c.looks)-1]
	for i := len(c.looks) - 2; i >= 0; i-- {
		if d := last.At - c.looks[i].At; d >= c.span() {
			return float64(last.Lost-c.looks[i].Lost) / d.Seconds()
		}
	}
	return 0
}

// paceBefore is the pace that was set a time ago: what is delivered now was sent then.
func (c *Control) paceBefore(d time.Duration) float64 {
	last := c.looks[len(c.looks)-1]
	for i := len(c.looks) - 1; i > 0; i-- {
		if last.At-c.looks[i].At >= d {
			return c.looks[i].pace
		}
	}
	return c.looks[0].pace
}

// fell says whether less is delivered than was sent at the pace of a round trip ago.
func (c *Control) fell(delivered float64) bool {
	return delivered > 0 && delivered < fallen*c.paceBefore(2*c.span())
}

// noteQueue sees since when the path's queue has stood. A machine that is late for a
// moment makes the round trip longer, too: what counts lasts.
func (c *Control) noteQueue(s Sample) {
	if s.RTT < c.base {
		c.base = s.RTT
	}
	base := c.trip()
	grain := min(s.Grain, base/mostGrain)
	lasts := base / 2
	if c.phase == PhaseFind || c.phase == PhaseTry { // there it grows fast
		lasts = base / 4
	}
	lasts = max(lasts, forgets*grain)
	counts := max(leastQueue, min(base/5, mostJitter), base/16, grain)
	c.mild = s.RTT <= base+mildQueues*counts
	switch {
	case s.RTT <= base+counts:
		c.high, c.queue = 0, 0
	case c.high == 0:
		c.high = s.At
	case c.queue == 0 && s.At-c.high >= lasts:
		c.queue = c.high
	}
}

// noteFloor takes a round trip for the path's that stays long however little is sent: the
// path has changed, or it is never quiet.
func (c *Control) noteFloor(s Sample) {
	if c.queue == 0 || s.At-c.queue < floorTrips*c.span() {
		return
	}
	c.base = s.RTT
	for _, l := range c.looks {
		c.base = min(c.base, l.RTT)
	}
	c.high, c.queue = 0, 0
}

// trips is how many round trips, at most one, have passed since the look before.
func (c *Control) trips(s Sample) float64 {
	return min((s.At-c.looks[len(c.looks)-2].At).Seconds()/c.trip().Seconds(), 1)
}

// carried is what is delivered with the path's queue standing, but no more than was sent:
// what has waited in a machine that was late arrives faster than the path carries it.
func (c *Control) carried() float64 {
	most := 0.0
	for _, l := range c.looks {
		most = max(most, l.pace)
	}
	return min(c.delivered(c.recent()), most)
}

// recent is a span short enough to have been spent with the queue standing.
func (c *Control) recent() time.Duration { return max(leastSpan, c.span()*3/4) }

// trip is the round trip of an empty queue.
func (c *Control) trip() time.Duration { return max(c.base, c.looks[len(c.looks)-1].MinRTT) }
