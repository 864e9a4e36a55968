package reserve

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

// plane simulates links in a row, link 0 first, and what goes over them: plain traffic of each
// link, and flows. It has a clock of its own, which goes on while counters are read.
type plane struct {
	book     *Book
	now      time.Time
	capacity float64
	links    []*planeLink
	flows    []*planeFlow
	// delay returns how long a request takes to reach a switch, or its answer to come back.
	delay func() time.Duration
	// fails reports whether a reading fails.
	fails func() bool
}

// planeLink is one link, and the switch that sends on it.
type planeLink struct {
	plain   float64 // offered by traffic that nothing holds back, in bit/s
	history []planeRate
	sent    float64 // bytes
	guard   float64 // rate of the meter that best effort passes, in bit/s; zero for none
	passed  float64 // bytes that it has passed
	dropped float64
	// used is what the latest poll tells, of the time from asked to polled; seen is what it has
	// counted. known is true after the first.
	used, seen    float64
	asked, polled time.Time
	known         bool
	// measured is when the window began that the book has measured last.
	measured time.Time
}

// planeRate is a rate that began at a time.
type planeRate struct {
	from time.Time
	rate float64
}

// planeFlow is one flow, which passes a meter of its rate while it is accepted.
type planeFlow struct {
	key         Key
	rate        float64
	demand      float64
	from, to    int // links, in the row
	accepted    bool
	meter       uint32
	created     time.Time
	in, dropped float64
}

func newPlane(links int, capacity float64) *plane {
	p := &plane{now: time.Unix(1_800_000_000, 0), capacity: capacity, delay: func() time.Duration { return 0 }, fails: func() bool { return false }}
	for range links {
		p.links = append(p.links, &planeLink{polled: p.now})
	}
	p.book = New(p.use)
	p.book.readAtOnce = 1 // the plane is deterministic, and its clock is nobody else's
	p.book.SetClock(func() time.Time { return p.now })
	p.book.SetGuardMeter(func(l Link) uint32 {
		if p.links[l.Switch].guard > 0 {
			return 1000
		}
		return 0
	})
	return p
}

func (p *plane) use(l Link) Use {
	x := p.links[l.Switch]
	until := x.polled.Add(15 * time.Second)
	return Use{Capacity: uint64(p.capacity), Used: uint64(x.used), Unknown: !x.known || !p.now.Before(until), Until: until}
}

// setPlain changes the plain traffic of a link.
func (p *plane) setPlain(link int, rate float64) {
	x := p.links[link]
	x.plain = rate
	x.history = append(x.history, planeRate{p.now, rate})
}

// leastPlain returns the least that plain traffic has offered to a link since a time.
func (p *plane) leastPlain(link int, since time.Time) float64 {
	x := p.links[link]
	least := x.plain
	for i, h := range x.history {
		if i+1 == len(x.history) || x.history[i+1].from.After(since) {
			least = min(least, h.rate)
		}
	}
	return least
}

// pass lets time pass. A link that is sent more than it has drops a part of all.
func (p *plane) pass(d time.Duration) {
	p.now = p.now.Add(d)
	seconds := d.Seconds()
	rates := make([]float64, len(p.flows))
	for i, f := range p.flows {
		rates[i] = f.demand
		if f.accepted {
			rates[i] = min(f.demand, f.rate)
			f.in += f.demand * seconds / 8
			f.dropped += (f.demand - rates[i]) * seconds / 8
		}
	}
	for n, x := range p.links {
		held, all := 0.0, x.plain
		for i, f := range p.flows {
			if n >= f.from && n <= f.to {
				if all += rates[i]; !f.accepted && x.guard > 0 {
					held += rates[i]
				}
			}
		}
		if x.guard > 0 {
			passed := min(held, x.guard)
			x.passed += passed * seconds / 8
			x.dropped += (held - passed) * seconds / 8
			for i, f := range p.flows {
				if n >= f.from && n <= f.to && !f.accepted && held > 0 {
					rates[i] *= passed / held
				}
			}
			all -= held - passed
		}
		through := min(1, p.capacity/max(all, 1))
		for i, f := range p.flows {
			if n >= f.from && n <= f.to {
				rates[i] *= through
			}
		}
		x.sent += all * through * seconds / 8
	}
}

// poll reads what links carry, as the network does by itself.
func (p *plane) poll() {
	for _, x := range p.links {
		if since := p.now.Sub(x.polled).Seconds(); since > 0 {
			x.used, x.seen, x.asked, x.polled, x.known = (x.sent-x.seen)*8/since, x.sent, x.polled, p.now, true
		}
	}
}

// measure has the book measure, and notes of which windows that is.
func (p *plane) measure() {
	before := map[Link]window{}
	begun := map[Link]time.Time{}
	for l, a := range p.book.links {
		if before[l] = a.measured; a.start != nil {
			begun[l] = a.start.port.Sent
		}
	}
	p.book.Measure(context.Background(), p)
	for l, a := range p.book.links {
		if a.measured != before[l] {
			p.links[l.Switch].measured = begun[l]
		}
	}
}

// since returns the beginning of the time of which the book knows what a link has carried.
func (p *plane) since(n int) time.Time {
	if a := p.book.links[link(n)]; a != nil && a.measured.isValid(p.now) {
		return p.links[n].measured
	}
	return p.links[n].asked
}

var errPlane = errors.New("the switch does not answer")

// PortCounters implements Counters, as do the following. Switch n sends on link n.
func (p *plane) PortCounters(_ context.Context, d openflow.DatapathID) ([]stats.Sample, error) {
	s := stats.Sample{Port: link(int(d)), Sent: p.now}
	p.pass(p.delay())
	s.TxBytes = uint64(p.links[d].sent)
	p.pass(p.delay())
	s.Received = p.now
	if p.fails() {
		return nil, errPlane
	}
	return []stats.Sample{s}, nil
}

func (p *plane) MeterStats(_ context.Context, d openflow.DatapathID) (all []openflow.MeterStats, err error) {
	p.pass(p.delay())
	meter := func(id uint32, in, dropped float64, created time.Time) {
		age := p.now.Sub(created)
		m := openflow.MeterStats{Meter: id, Bands: []openflow.Counter{{Bytes: uint64(dropped)}}}
		m.Bytes = uint64(in)
		m.Duration = openflow.Duration{Sec: uint32(age / time.Second), Nsec: uint32(age % time.Second)}
		all = append(all, m)
	}
	if x := p.links[d]; x.guard > 0 {
		meter(1000, x.passed+x.dropped, x.dropped, time.Unix(1_800_000_000, 0))
	}
	for _, f := range p.flows {
		if f.accepted && f.from == int(d) {
			meter(f.meter, f.in, f.dropped, f.created)
		}
	}
	p.pass(p.delay())
	if p.fails() {
		return nil, errPlane
	}
	return all, nil
}

func (p *plane) QueueStats(context.Context, openflow.DatapathID) ([]openflow.QueueStats, error) {
	return nil, errPlane
}

// promise is what a flow asks for.
func (p *plane) promise(f *planeFlow, yields bool) Promise {
	out := Promise{Key: f.key, Yields: yields, Waits: yields}
	for n := f.from; n <= f.to; n++ {
		s := Share{Link: link(n)}
		if !yields {
			s.Rate = uint64(f.rate)
			s.Counter = Counter{Switch: openflow.DatapathID(f.from), Meter: f.meter}
		}
		out.Shares = append(out.Shares, s)
	}
	return out
}

// admit asks for a flow's promise, and reports whether it is made. If not, the flow goes on by
// best effort.
func (p *plane) admit(f *planeFlow) bool {
	for n := f.from; n <= f.to; n++ {
		if p.book.links[link(n)] == nil { // the book keeps what is known before the promise
			p.links[n].measured = p.links[n].asked
		}
	}
	if p.book.Admit(p.promise(f, false)) != nil {
		if !f.accepted {
			p.book.Restore(p.promise(f, true))
		}
		return false
	}
	p.pass(p.delay()) // until its meter is there, and rules pass it
	if !f.accepted {
		f.accepted, f.created, f.in, f.dropped = true, p.now, 0, 0
	}
	p.book.RulesInstalled(f.key)
	return true
}

// hold changes the meters of links to what is neither promised nor used by others.
func (p *plane) hold() {
	for n, x := range p.links {
		others, _ := p.book.Others(link(n))
		left := p.capacity*0.96 - float64(p.book.Promised(link(n))) - float64(others)
		x.guard = max(left, p.capacity*0.02)
	}
}
