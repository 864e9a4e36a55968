package stats

import (
	"math"
	"time"
)

// loss compares the packets sent at one end of a link with those received at the
// other, over the time that both have been counted without a break. What comes out
// went in a latency before.
//
// The ends are read at times that differ; between two readings a counter is taken
// to grow evenly. What that assumption may be wrong by is no loss.
func loss(from, to *series, latency, window time.Duration) (float64, bool) {
	sent, received := from.unbroken(), to.unbroken()
	if len(sent) == 0 || len(received) == 0 {
		return 0, false
	}
	end := earlier(sent[len(sent)-1].At, received[len(received)-1].At.Add(-latency))
	start := end.Add(-window)
	for _, first := range []time.Time{sent[0].begin(), received[0].begin().Add(-latency)} {
		if first.After(start) {
			start = first
		}
	}
	if !start.Before(end) {
		return 0, false
	}
	in := packets{sent, Rate.sent}
	out := packets{received, Rate.received}
	went, came := in.between(start, end), out.between(start.Add(latency), end.Add(latency))
	if went <= 0 {
		return 0, false
	}
	swing := swing(sent, received)
	doubt := in.doubt(start, swing) + in.doubt(end, swing) + out.doubt(start.Add(latency), swing) + out.doubt(end.Add(latency), swing)
	lost := went - came
	if lost <= doubt {
		return 0, true
	}
	return lost / went, true
}

func (r Rate) sent() float64     { return r.TxPackets }
func (r Rate) received() float64 { return r.RxPackets }

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
// lies between two readings: one for the counter's own steps, and what went between
// t and the nearest reading, if that was as uneven as the traffic is.
func (p packets) doubt(t time.Time, swing float64) float64 {
	for _, r := range p.rates {
		before, after := t.Sub(r.begin()), r.At.Sub(t)
		if before >= 0 && after >= 0 {
			return 1 + min(p.of(r)*r.Interval.Seconds(), swing*min(before, after).Seconds())
		}
	}
	return 1
}
