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

// Sample is one reading of a port's counters.
type Sample struct {
	Port topology.PortRef
	// Sent and Received are when the request went out and the reply came in.
	Sent, Received time.Time
	// Age is how long the port has existed, zero if the switch does not say.
	Age time.Duration
	Counters
}

func (s *Sample) at() time.Time { return s.Sent.Add(s.Received.Sub(s.Sent) / 2) }

// Rate is what went through a port during the interval that ended at At. Bits
// and packets are per second, drops and errors too.
type Rate struct {
	At                   time.Time
	Interval             time.Duration
	RxBits, TxBits       float64
	RxPackets, TxPackets float64
	RxDropped, TxDropped float64
	RxErrors, TxErrors   float64
}

// Options say how much is remembered. Zero fields mean the defaults.
type Options struct {
	// Points is the length of each port's history.
	Points int
	// LossWindow is the time over which the two ends of a link are compared.
	LossWindow time.Duration
}

// The defaults: an hour at one sample in five seconds; a minute for loss.
const (
	DefaultPoints     = 720
	DefaultLossWindow = time.Minute
)

// Table holds the latest sample and the history of each port. Its methods may be
// called concurrently.
type Table struct {
	opts  Options
	mu    sync.RWMutex
	ports map[topology.PortRef]*series
}

type series struct {
	last Sample
	ring []Rate
	next int // where the ring is written next, once it is full
}

// New makes an empty table.
func New(o Options) *Table {
	o.Points = cmp.Or(o.Points, DefaultPoints)
	o.LossWindow = cmp.Or(o.LossWindow, DefaultLossWindow)
	return &Table{opts: o, ports: map[topology.PortRef]*series{}}
}

// Observe takes a sample and returns the rate since the one before; false if
// there is none, or the counters were reset in between.
func (t *Table) Observe(s Sample) (Rate, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.ports[s.Port]
	if p == nil {
		t.ports[s.Port] = &series{last: s}
		return Rate{}, false
	}
	last := p.last
	interval := s.at().Sub(last.at())
	if interval <= 0 { // an old reply overtaken by a newer one
		return Rate{}, false
	}
	p.last = s
	r, ok := rate(&last, &s, interval)
	if ok {
		p.push(r, t.opts.Points)
	}
	return r, ok
}

func (p *series) push(r Rate, points int) {
	if len(p.ring) < points {
		p.ring = append(p.ring, r)
		return
	}
	p.ring[p.next] = r
	p.next = (p.next + 1) % len(p.ring)
}

// latest is the last rate, if there is one.
func (p *series) latest() (Rate, bool) {
	if len(p.ring) == 0 {
		return Rate{}, false
	}
	return p.ring[(p.next+len(p.ring)-1)%len(p.ring)], true
}

func rate(old, new *Sample, interval time.Duration) (Rate, bool) {
	r := Rate{At: new.at(), Interval: interval}
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

// Rate returns the latest rate of a port.
func (t *Table) Rate(at topology.PortRef) (Rate, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p := t.ports[at]
	if p == nil {
		return Rate{}, false
	}
	return p.latest()
}

// Counters returns the latest counters of a port and when they were read.
func (t *Table) Counters(at topology.PortRef) (Counters, time.Time, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p := t.ports[at]
	if p == nil {
		return Counters{}, time.Time{}, false
	}
	return p.last.Counters, p.last.at(), true
}

// History returns the rates of a port since a time, the oldest first.
func (t *Table) History(at topology.PortRef, since time.Time) []Rate {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p := t.ports[at]
	if p == nil {
		return nil
	}
	return p.history(since)
}

func (p *series) history(since time.Time) []Rate {
	var out []Rate
	for i := range p.ring {
		if r := p.ring[(p.next+i)%len(p.ring)]; r.At.After(since) {
			out = append(out, r)
		}
	}
	return out
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
