package stats

import (
	"math"
	"slices"
	"time"
)

// Loss tells what of the packets that went into one direction of a link has not come out.
// Only what the path itself loses tells of the packets to come: what a full queue has lost
// in a burst is over with it.
type Loss struct {
	// Path is the share that the path loses: what all of the latest readings have in
	// common, over the loss window. It is of Packets packets, counted from Since to At,
	// and zero while there are none.
	Path      float64
	Packets   uint64
	Since, At time.Time
	// Queue is the share of all packets of the loss window that queues have lost: those
	// that the sending port has dropped, and those lost beyond Path's share in readings
	// in which the link was full, or that stand out from the latest ones. QueueAt is the
	// end of the last of these, zero if there is none.
	Queue   float64
	QueueAt time.Time
}

const (
	// latestSpans are those by which it is told what a link loses now: a burst fills
	// fewer than half of them, and what is over has left them after as many.
	latestSpans = 5
	// full is the share of its capacity that a link carries at least when its queue
	// overflows: in a reading, which begins and ends at any time.
	full = 0.9
	// deviations is how many standard deviations a reading may be off what the link loses.
	deviations = 4
)

// span compares the two ends of a link between two readings of the sending one.
type span struct {
	start, end time.Time
	went, lost float64    // packets; what was lost can come out below zero
	doubts     [2]float64 // packets by which lost may be off at the start and the end
	dropped    float64    // packets that the sending port has dropped
	full       bool
}

func (s *span) share() float64 {
	if s.went <= 0 {
		return 0
	}
	return max(0, s.lost/s.went)
}

func (s *span) doubt() float64 { return s.doubts[0] + s.doubts[1] }

// spans compares the packets sent at one end of a link with those received at the other,
// over the time that both have been counted without a break, the oldest first. What comes
// out went in a latency before.
//
// The ends are read at times that differ; between two readings a counter is taken to grow
// evenly. What that assumption may be wrong by is no loss.
func spans(from, to *series, latency, window time.Duration, capacity uint64) []span {
	sent, received := from.unbroken(), to.unbroken()
	if len(sent) == 0 || len(received) == 0 {
		return nil
	}
	end := earlier(sent[len(sent)-1].At, received[len(received)-1].At.Add(-latency))
	start := end.Add(-window)
	for _, first := range []time.Time{sent[0].begin(), received[0].begin().Add(-latency)} {
		if first.After(start) {
			start = first
		}
	}
	in, out, drops := packets{sent, Rate.sent}, packets{received, Rate.received}, packets{sent, Rate.dropped}
	swing := swing(sent, received)
	var all []span
	for _, r := range sent {
		s := span{start: r.begin(), end: earlier(r.At, end)}
		if s.start.Before(start) {
			s.start = start
		}
		if !s.start.Before(s.end) {
			continue
		}
		s.went = in.between(s.start, s.end)
		s.lost = s.went - out.between(s.start.Add(latency), s.end.Add(latency))
		for i, at := range []time.Time{s.start, s.end} {
			s.doubts[i] = in.doubt(at, swing) + out.doubt(at.Add(latency), swing)
		}
		s.dropped = drops.between(s.start, s.end)
		s.full = capacity > 0 && r.TxBits >= full*float64(capacity)
		all = append(all, s)
	}
	return all
}

// typical is the share that most of the latest spans lose: their median. Before there
// are enough of them, the missing ones count as without loss.
func typical(all []span) float64 {
	var shares [latestSpans]float64
	n := 0
	for _, s := range slices.Backward(all) {
		if !s.full && n < latestSpans {
			shares[n] = s.share()
			n++
		}
	}
	slices.Sort(shares[:])
	return shares[latestSpans/2]
}

// stands says how a span stands to what the link loses now: 0 if it is of it, 1 if it has
// lost more, -1 if less.
func (s *span) stands(typical float64) int {
	expected := s.went * typical
	slack := s.doubt() + deviations*math.Sqrt(expected)
	switch {
	case s.full || s.lost > 2*expected+slack:
		return 1
	case s.lost < expected/2-slack:
		return -1
	}
	return 0
}

// loss judges spans, the oldest first.
func loss(all []span) Loss {
	var l Loss
	typical := typical(all)
	var went, lost, doubt, of float64
	var last span
	for i := range all {
		s := &all[i]
		went += s.went + s.dropped
		if s.stands(typical) != 0 {
			continue
		}
		if l.Since.IsZero() {
			l.Since = s.start
		}
		if doubt += s.doubt(); last.end.Equal(s.start) { // what one has too much the next has not
			doubt -= s.doubts[0] + last.doubts[1]
		}
		last, l.At = *s, s.end
		of, lost = of+s.went, lost+s.lost
	}
	if l.Packets = uint64(math.Round(of)); l.Packets == 0 {
		l.Since, l.At = time.Time{}, time.Time{}
	} else if lost > doubt {
		l.Path = lost / of
	}
	var queues float64
	for i := range all {
		s := &all[i]
		more := s.dropped
		if excess := s.lost - s.went*l.Path; s.stands(typical) > 0 && excess > s.doubt() {
			more += excess
		}
		if more > 0 {
			queues, l.QueueAt = queues+more, s.end
		}
	}
	if went > 0 {
		l.Queue = min(1, queues/went)
	}
	return l
}

func (r Rate) sent() float64     { return r.TxPackets }
func (r Rate) received() float64 { return r.RxPackets }
func (r Rate) dropped() float64  { return r.TxDropped }

func (r *Rate) begin() time.Time { return r.At.Add(-r.Interval) }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// unbroken are the latest rates whose intervals follow on each other, the oldest
// first: a reset of the counters leaves a gap.
func (p *series) unbroken() []Rate {
	var out []Rate
	for r := range p.all() {
		if n := len(out); n > 0 && r.begin().Sub(out[n-1].At).Abs() > time.Millisecond {
			out = out[:0]
		}
		out = append(out, r)
	}
	return out
}

// packets count one direction at one end of a link.
type packets struct {
	rates []Rate
	of    func(Rate) float64
}

// between sums the rate over the time from start to end.
func (p packets) between(start, end time.Time) float64 {
	sum := 0.0
	for _, r := range p.rates {
		a, b := r.begin(), earlier(r.At, end)
		if a.Before(start) {
			a = start
		}
		if d := b.Sub(a); d > 0 {
			sum += p.of(r) * d.Seconds()
		}
	}
	return sum
}

// swing is by how much the traffic of a link changes: the difference of the highest
// rate and the lowest, seen at both ends. From a few readings nothing can be told,
// and it may be as much as there is.
func swing(sent, received []Rate) float64 {
	least, most := math.Inf(1), 0.0
	for _, p := range []packets{{sent, Rate.sent}, {received, Rate.received}} {
		for _, r := range p.rates {
			least, most = min(least, p.of(r)), max(most, p.of(r))
		}
	}
	if min(len(sent), len(received)) < fewReadings {
		return most
	}
	return most - least
}

// fewReadings are too few to tell how even the traffic of a link is.
const fewReadings = 6

// doubt is how many packets the sum may be wrong by because one of its ends, t,
// lies between two readings: one for the counter's own steps, what went while a reading
// was awaited, and what went between t and the nearest reading, if that was as uneven as
// the traffic is.
func (p packets) doubt(t time.Time, swing float64) float64 {
	for _, r := range p.rates {
		before, after := t.Sub(r.begin()), r.At.Sub(t)
		if before >= 0 && after >= 0 {
			return 1 + min(p.of(r)*r.Interval.Seconds(), swing*min(before, after).Seconds()+p.of(r)*r.Unsure.Seconds())
		}
	}
	return 1
}
