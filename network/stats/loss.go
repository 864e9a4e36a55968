package stats

import (
	"math"
	"slices"
	"time"
)

// Loss holds the shares of packets that were lost on one direction of a link. Only the loss of
// the path itself predicts future losses; losses by a full queue end with the burst that filled
// it.
type Loss struct {
	// Path is the share of packets that the path loses. It is measured over those intervals of the
	// loss window in which the loss agrees with the median of the latest intervals: on Packets
	// packets, counted from Since to At. It is zero while there are none.
	Path      float64
	Packets   uint64
	Since, At time.Time
	// Queue is the share of all packets of the loss window that queues have lost. It counts packets
	// that the sending port has dropped. In intervals in which the link was full or lost more than in
	// the latest ones, it also counts the losses beyond Path's share. QueueAt is the end of the last
	// interval with losses by queues, zero if there is none.
	Queue   float64
	QueueAt time.Time
}

const (
	// latestIntervals is the number of intervals that determine the present loss of a link. A burst
	// fills fewer than half of them, and has no effect once they have passed.
	latestIntervals = 5
	// fullShare is the share of its capacity from which a link counts as full in an interval. It is
	// less than 1, because an interval may begin before the queue overflows, and end after it.
	fullShare = 0.9
	// maxDeviations is how many standard deviations an interval may differ from the link's usual
	// loss.
	maxDeviations = 4
)

// interval compares the two ends of a link between two readings of the sending end.
type interval struct {
	start, end time.Time
	went, lost float64    // packets; lost can be negative
	errors     [2]float64 // the possible errors of lost, in packets, at the start and the end
	dropped    float64    // packets that the sending port has dropped
	full       bool
}

func (s *interval) share() float64 {
	if s.went <= 0 {
		return 0
	}
	return max(0, s.lost/s.went)
}

func (s *interval) maxError() float64 { return s.errors[0] + s.errors[1] }

// compareCounters compares the packets sent at one end of a link with those received at the
// other, over the time in which both were counted without a break, the oldest interval first. A
// packet arrives one latency after it was sent.
//
// The ends are read at different times; between two readings a counter is assumed to grow
// evenly. The possible error of that assumption does not count as loss.
func compareCounters(from, to *series, latency, window time.Duration, capacity uint64) []interval {
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
	in, out, drops := packetCount{sent, Rate.sent}, packetCount{received, Rate.received}, packetCount{sent, Rate.dropped}
	spread := trafficSpread(sent, received)
	var all []interval
	for _, r := range sent {
		s := interval{start: r.begin(), end: earlier(r.At, end)}
		if s.start.Before(start) {
			s.start = start
		}
		if !s.start.Before(s.end) {
			continue
		}
		s.went = in.between(s.start, s.end)
		s.lost = s.went - out.between(s.start.Add(latency), s.end.Add(latency))
		for i, at := range []time.Time{s.start, s.end} {
			s.errors[i] = in.uncertainty(at, spread) + out.uncertainty(at.Add(latency), spread)
		}
		s.dropped = drops.between(s.start, s.end)
		s.full = capacity > 0 && r.TxBits >= fullShare*float64(capacity)
		all = append(all, s)
	}
	return all
}

// medianShare returns the median share that the latest intervals have lost. If there are too few
// of them, the missing ones count as without loss.
func medianShare(all []interval) float64 {
	var shares [latestIntervals]float64
	n := 0
	for _, s := range slices.Backward(all) {
		if !s.full && n < latestIntervals {
			shares[n] = s.share()
			n++
		}
	}
	slices.Sort(shares[:])
	return shares[latestIntervals/2]
}

// compare returns 0 if an interval's loss agrees with the usual share, 1 if the interval was full
// or has lost more, and -1 if it has lost less.
func (s *interval) compare(usual float64) int {
	expected := s.went * usual
	slack := s.maxError() + maxDeviations*math.Sqrt(expected)
	switch {
	case s.full || s.lost > 2*expected+slack:
		return 1
	case s.lost < expected/2-slack:
		return -1
	}
	return 0
}

// computeLoss computes the loss from intervals, the oldest first.
func computeLoss(all []interval) Loss {
	var l Loss
	usual := medianShare(all)
	var went, lost, maxError, counted float64
	var last interval
	for i := range all {
		s := &all[i]
		went += s.went + s.dropped
		if s.compare(usual) != 0 {
			continue
		}
		if l.Since.IsZero() {
			l.Since = s.start
		}
		if maxError += s.maxError(); last.end.Equal(s.start) { // the errors at a common boundary cancel out
			maxError -= s.errors[0] + last.errors[1]
		}
		last, l.At = *s, s.end
		counted, lost = counted+s.went, lost+s.lost
	}
	if l.Packets = uint64(math.Round(counted)); l.Packets == 0 {
		l.Since, l.At = time.Time{}, time.Time{}
	} else if lost > maxError {
		l.Path = lost / counted
	}
	var queues float64
	for i := range all {
		s := &all[i]
		more := s.dropped
		if excess := s.lost - s.went*l.Path; s.compare(usual) > 0 && excess > s.maxError() {
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

// unbroken returns the latest rates whose intervals follow each other, the oldest first. A reset
// of the counters leaves a gap.
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

// packetCount counts the packets of one direction at one end of a link.
type packetCount struct {
	rates []Rate
	value func(Rate) float64
}

// between returns the number of packets from start to end.
func (p packetCount) between(start, end time.Time) float64 {
	sum := 0.0
	for _, r := range p.rates {
		a, b := r.begin(), earlier(r.At, end)
		if a.Before(start) {
			a = start
		}
		if d := b.Sub(a); d > 0 {
			sum += p.value(r) * d.Seconds()
		}
	}
	return sum
}

// trafficSpread returns the range in which the traffic of a link varies: the difference between the
// highest and the lowest rate at both ends. If there are too few readings, it returns the highest
// rate.
func trafficSpread(sent, received []Rate) float64 {
	least, most := math.Inf(1), 0.0
	for _, p := range []packetCount{{sent, Rate.sent}, {received, Rate.received}} {
		for _, r := range p.rates {
			least, most = min(least, p.value(r)), max(most, p.value(r))
		}
	}
	if min(len(sent), len(received)) < minReadings {
		return most
	}
	return most - least
}

// minReadings is the number of readings from which the variation of a link's traffic is known.
const minReadings = 6

// uncertainty returns the possible error, in packets, of a sum that begins or ends at t, between two
// readings. It adds up one packet for the counter's own steps, the packets sent while a reading was
// awaited, and the difference from the mean rate between t and the nearest reading. That difference
// follows from spread, the range of the link's traffic. The last two together are at most the packets
// of the interval.
func (p packetCount) uncertainty(t time.Time, spread float64) float64 {
	for _, r := range p.rates {
		before, after := t.Sub(r.begin()), r.At.Sub(t)
		if before >= 0 && after >= 0 {
			return 1 + min(p.value(r)*r.Interval.Seconds(), spread*min(before, after).Seconds()+p.value(r)*r.Unsure.Seconds())
		}
	}
	return 1
}
