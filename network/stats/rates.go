package stats

import (
	"cmp"
	"math"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Unsupported is the value that a switch reports for a counter that it does not keep.
const Unsupported = math.MaxUint64

// Counters holds the counters of a port.
type Counters struct {
	RxPackets, TxPackets, RxBytes, TxBytes   uint64
	RxDropped, TxDropped, RxErrors, TxErrors uint64
}

// Source is the way in which a reading came to the controller.
type Source uint8

// The sources, the preferred one first.
const (
	// Polled counters were requested by the controller.
	Polled Source = iota
	// Pushed counters were sent by the switch on its own (sFlow).
	Pushed
	numSources
)

// Sample is one reading of a port's counters.
type Sample struct {
	Port   topology.PortRef
	Source Source
	// Sent and Received are when the request was sent and the reply arrived. For pushed
	// counters, both are the time of arrival.
	Sent, Received time.Time
	// Age is how long the port has existed, zero if the switch does not report it.
	Age time.Duration
	Counters
}

// uncertainty returns the largest distance between at and the time at which the counters were
// read.
func (s *Sample) uncertainty() time.Duration { return s.Received.Sub(s.Sent) / 2 }

func (s *Sample) at() time.Time { return s.Sent.Add(s.Received.Sub(s.Sent) / 2) }

// Rate is the traffic of a port during the interval that ended at At. All fields are per second:
// bits, packets, drops and errors.
type Rate struct {
	At       time.Time
	Interval time.Duration
	// Unsure is the sum of the possible errors of the interval's two ends: counters are read at
	// some time between a request and its reply.
	Unsure               time.Duration
	RxBits, TxBits       float64
	RxPackets, TxPackets float64
	RxDropped, TxDropped float64
	RxErrors, TxErrors   float64
}

// Options control how much is remembered. Zero fields mean the defaults.
type Options struct {
	// Interval is the usual time between two readings of a port. If a source has been silent for
	// several intervals, another is used.
	Interval time.Duration
	// LossWindow is the time over which the two ends of a link are compared. Rates are kept for the
	// same time.
	LossWindow time.Duration
}

// The defaults of Options.
const (
	DefaultInterval   = 5 * time.Second
	DefaultLossWindow = time.Minute
)

// staleIntervals is the number of intervals that a source may be silent before another one is used.
const staleIntervals = 3

// Table holds the latest sample and the latest rates of each port. It is safe for concurrent
// use.
type Table struct {
	opts   Options
	size   int // of each port's ring
	mu     sync.RWMutex
	ports  map[topology.PortRef]*[numSources]series
	losses map[linkEnds]Loss // replaced and never modified
}

// linkEnds identifies one direction of a link.
type linkEnds struct{ from, to topology.PortRef }

// series holds the readings of one port from one source.
type series struct {
	last    Sample
	started bool
	ring[Rate]
}

// New returns an empty table.
func New(o Options) *Table {
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.LossWindow = cmp.Or(o.LossWindow, DefaultLossWindow)
	// A window begins and ends between readings of either end.
	size := int(o.LossWindow/o.Interval) + 4
	return &Table{opts: o, size: size, ports: map[topology.PortRef]*[numSources]series{}}
}

// Observe records a sample and returns the rate since the previous sample of the same source. It
// returns false if there is none, or if the counters were reset in between.
func (t *Table) Observe(s Sample) (Rate, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.ports[s.Port]
	if p == nil {
		p = new([numSources]series)
		t.ports[s.Port] = p
	}
	return p[s.Source].observe(s, t.size)
}

func (p *series) observe(s Sample, size int) (Rate, bool) {
	last := p.last
	if !p.started {
		p.last, p.started = s, true
		return Rate{}, false
	}
	interval := s.at().Sub(last.at())
	if interval <= 0 { // an old reply overtaken by a newer one
		return Rate{}, false
	}
	p.last = s
	r, ok := rate(&last, &s, interval)
	if ok {
		p.push(r, size)
	}
	return r, ok
}

func rate(old, new *Sample, interval time.Duration) (Rate, bool) {
	r := Rate{At: new.at(), Interval: interval, Unsure: old.uncertainty() + new.uncertainty()}
	reset := old.Age > 0 && new.Age > 0 && new.Age < old.Age
	o, n := &old.Counters, &new.Counters
	for _, c := range []struct {
		old, new uint64
		unit     float64
		rate     *float64
	}{
		{o.RxBytes, n.RxBytes, 8, &r.RxBits},
		{o.TxBytes, n.TxBytes, 8, &r.TxBits},
		{o.RxPackets, n.RxPackets, 1, &r.RxPackets},
		{o.TxPackets, n.TxPackets, 1, &r.TxPackets},
		{o.RxDropped, n.RxDropped, 1, &r.RxDropped},
		{o.TxDropped, n.TxDropped, 1, &r.TxDropped},
		{o.RxErrors, n.RxErrors, 1, &r.RxErrors},
		{o.TxErrors, n.TxErrors, 1, &r.TxErrors},
	} {
		if c.new == Unsupported || c.old == Unsupported {
			continue
		}
		if c.new < c.old && (reset || old.Age == 0 || new.Age == 0) {
			return Rate{}, false
		}
		*c.rate = float64(counterDelta(c.old, c.new)) * c.unit / interval.Seconds()
	}
	return r, !reset
}

// counterDelta returns the difference of two readings. It takes a counter that has decreased for one
// of 32 bits if the earlier reading fits into 32 bits.
func counterDelta(old, new uint64) uint64 {
	if new < old && old <= math.MaxUint32 {
		return uint64(uint32(new) - uint32(old))
	}
	return new - old
}

// best returns the series of the first source that is not silent, nil if there is no reading at
// all.
func (t *Table) best(at topology.PortRef) *series {
	p := t.ports[at]
	if p == nil {
		return nil
	}
	var best *series
	for i := range p {
		s := &p[i]
		if s.started && (best == nil || s.last.at().Sub(best.last.at()) > staleIntervals*t.opts.Interval) {
			best = s
		}
	}
	return best
}

// Rate returns the latest rate of a port.
func (t *Table) Rate(at topology.PortRef) (Rate, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p := t.best(at)
	if p == nil {
		return Rate{}, false
	}
	return p.latest()
}

// RateBy returns the latest rate of a port from one source.
func (t *Table) RateBy(at topology.PortRef, by Source) (Rate, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p := t.ports[at]
	if p == nil {
		return Rate{}, false
	}
	return p[by].latest()
}

// Forget removes a port that is gone.
func (t *Table) Forget(at topology.PortRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ports, at)
}

// ForgetSwitch removes the ports of a switch that is gone for good.
func (t *Table) ForgetSwitch(s openflow.DatapathID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at := range t.ports {
		if at.Switch == s {
			delete(t.ports, at)
		}
	}
}
