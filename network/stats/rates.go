package stats

import (
	"cmp"
	"math"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Unsupported is what a switch reports for a counter that it does not keep.
const Unsupported = math.MaxUint64

// Counters are the counters of a port.
type Counters struct {
	RxPackets, TxPackets, RxBytes, TxBytes   uint64
	RxDropped, TxDropped, RxErrors, TxErrors uint64
}

// Source is how a reading came to the controller.
type Source uint8

// The sources, the preferred one first.
const (
	// Polled counters were asked for.
	Polled Source = iota
	// Pushed counters were sent by the switch of its own accord (sFlow).
	Pushed
	sources
)

// Sample is one reading of a port's counters.
type Sample struct {
	Port   topology.PortRef
	Source Source
	// Sent and Received are when the request went out and the reply came in. Of
	// counters that were pushed, both are when they came in.
	Sent, Received time.Time
	// Age is how long the port has existed, zero if the switch does not say.
	Age time.Duration
	Counters
}

// unsure is how far from at the counters may have been read.
func (s *Sample) unsure() time.Duration { return s.Received.Sub(s.Sent) / 2 }

func (s *Sample) at() time.Time { return s.Sent.Add(s.Received.Sub(s.Sent) / 2) }

// Rate is what went through a port during the interval that ended at At. Bits
// and packets are per second, drops and errors too.
type Rate struct {
	At       time.Time
	Interval time.Duration
	// Unsure is how far the two ends of the interval may be off together: counters are
	// read at some time between a request and its reply.
	Unsure               time.Duration
	RxBits, TxBits       float64
	RxPackets, TxPackets float64
	RxDropped, TxDropped float64
	RxErrors, TxErrors   float64
}

// Options say how much is remembered. Zero fields mean the defaults.
type Options struct {
	// Interval is the usual time between two readings of a port. A source that has
	// been silent for several gives way to another.
	Interval time.Duration
	// LossWindow is the time over which the two ends of a link are compared. Rates
	// are remembered for as long.
	LossWindow time.Duration
}

// The defaults of Options.
const (
	DefaultInterval   = 5 * time.Second
	DefaultLossWindow = time.Minute
)

// staleAfter is how many intervals a source may be silent.
const staleAfter = 3

// Table holds the latest sample and the latest rates of each port. Its methods may
// be called concurrently.
type Table struct {
	opts   Options
	size   int // of each port's ring
	mu     sync.RWMutex
	ports  map[topology.PortRef]*[sources]series
	losses map[ends]Loss // replaced, not changed
}

// ends name one direction of a link.
type ends struct{ from, to topology.PortRef }

// series is what one source says of one port.
type series struct {
	last  Sample
	begun bool
	ring[Rate]
}

// New makes an empty table.
func New(o Options) *Table {
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.LossWindow = cmp.Or(o.LossWindow, DefaultLossWindow)
	// The ends of a window lie between readings, of the one end or of the other.
	size := int(o.LossWindow/o.Interval) + 4
	return &Table{opts: o, size: size, ports: map[topology.PortRef]*[sources]series{}}
}

// Observe takes a sample and returns the rate since the one before from the same
// source; false if there is none, or the counters were reset in between.
func (t *Table) Observe(s Sample) (Rate, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.ports[s.Port]
	if p == nil {
		p = new([sources]series)
		t.ports[s.Port] = p
	}
	return p[s.Source].observe(s, t.size)
}

func (p *series) observe(s Sample, size int) (Rate, bool) {
	last := p.last
	if !p.begun {
		p.last, p.begun = s, true
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
	r := Rate{At: new.at(), Interval: interval, Unsure: old.unsure() + new.unsure()}
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
		*c.rate = float64(grown(c.old, c.new)) * c.unit / interval.Seconds()
	}
	return r, !reset
}

// grown is the difference of two readings. A counter that has gone back was one
// of 32 bits if it never needed more.
func grown(old, new uint64) uint64 {
	if new < old && old <= math.MaxUint32 {
		return uint64(uint32(new) - uint32(old))
	}
	return new - old
}

// best is what the first source says that is not silent; nil if none ever spoke.
func (t *Table) best(at topology.PortRef) *series {
	p := t.ports[at]
	if p == nil {
		return nil
	}
	var best *series
	for i := range p {
		s := &p[i]
		if s.begun && (best == nil || s.last.at().Sub(best.last.at()) > staleAfter*t.opts.Interval) {
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

// RateBy returns the latest rate of a port that a source has given.
func (t *Table) RateBy(at topology.PortRef, by Source) (Rate, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p := t.ports[at]
	if p == nil {
		return Rate{}, false
	}
	return p[by].latest()
}

// Forget drops a port that is gone.
func (t *Table) Forget(at topology.PortRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ports, at)
}

// ForgetSwitch drops the ports of a switch that is gone for good.
func (t *Table) ForgetSwitch(s openflow.DatapathID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at := range t.ports {
		if at.Switch == s {
			delete(t.ports, at)
		}
	}
}
