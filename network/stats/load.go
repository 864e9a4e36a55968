package stats

import (
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// Load is the measured state of one direction of a link.
type Load struct {
	// Used is in bits per second.
	Used uint64
	// Loss is the share of packets that went in and did not come out, over the
	// loss window; LossKnown tells whether both ends have been measured.
	Loss      float64
	LossKnown bool
}

// Load measures a link: what its sending end sends or, where that end does not
// count, what its receiving end receives.
func (t *Table) Load(l topology.Link) Load {
	t.mu.RLock()
	defer t.mu.RUnlock()
	from, to := t.ports[l.From], t.ports[l.To]
	var load Load
	if from != nil {
		if r, ok := from.latest(); ok {
			load.Used = uint64(r.TxBits)
		}
	}
	if load.Used == 0 && to != nil {
		if r, ok := to.latest(); ok {
			load.Used = uint64(r.RxBits)
		}
	}
	if from != nil && to != nil {
		load.Loss, load.LossKnown = loss(from, to, t.opts.LossWindow)
	}
	return load
}

// loss compares the packets sent at one end with those received at the other
// over the time that both histories cover. The ends are read at different times;
// between two readings a counter is taken to grow evenly.
func loss(from, to *series, window time.Duration) (float64, bool) {
	a, okA := from.latest()
	b, okB := to.latest()
	if !okA || !okB {
		return 0, false
	}
	end := a.At
	if b.At.Before(end) {
		end = b.At
	}
	start := end.Add(-window)
	sent, received := from.history(start), to.history(start)
	if len(sent) == 0 || len(received) == 0 {
		return 0, false
	}
	for _, first := range []Rate{sent[0], received[0]} {
		if t := first.At.Add(-first.Interval); t.After(start) {
			start = t
		}
	}
	in := integrate(sent, start, end, func(r Rate) float64 { return r.TxPackets })
	out := integrate(received, start, end, func(r Rate) float64 { return r.RxPackets })
	if in <= 0 {
		return 0, false
	}
	return max(0, 1-out/in), true
}

// integrate sums a rate over the time from start to end.
func integrate(rates []Rate, start, end time.Time, value func(Rate) float64) float64 {
	sum := 0.0
	for _, r := range rates {
		a, b := r.At.Add(-r.Interval), r.At
		if a.Before(start) {
			a = start
		}
		if b.After(end) {
			b = end
		}
		if d := b.Sub(a); d > 0 {
			sum += value(r) * d.Seconds()
		}
	}
	return sum
}

// Annotate fills in capacity, use and loss of links. capacity gives that of the
// link leaving by a port in bits per second, zero while unknown.
func (t *Table) Annotate(links []topology.Link, capacity func(topology.PortRef) uint64) {
	for i := range links {
		l := &links[i]
		l.Capacity = capacity(l.From)
		load := t.Load(*l)
		l.Used, l.Loss = load.Used, load.Loss
	}
}
