package reserve

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

// rounds measures a number of times, some seconds apart.
func (p *plane) rounds(n int) {
	for range n {
		p.pass(5 * time.Second)
		p.poll()
		p.hold()
		p.measure()
	}
}

// flow adds a flow over some links.
func (p *plane) flow(id string, rate, demand float64, from, to int) *planeFlow {
	f := &planeFlow{key: key(id), rate: rate, demand: demand, from: from, to: to, meter: uint32(len(p.flows) + 1)}
	p.flows = append(p.flows, f)
	return f
}

// A flow that was refused is not accepted because it sends: what it sends is not room for it,
// however much gets through.
func TestRefusedFlowStaysRefused(t *testing.T) {
	for _, c := range []struct {
		name                string
		plain, rate, demand float64
	}{
		{"a link with 2 of 15 left", 13 * mbit, 5 * mbit, 5 * mbit},
		{"a link with 2 of 15 left, and a sender of nearly all", 13 * mbit, 5 * mbit, 14.4 * mbit},
		{"a link that is full", 15 * mbit, 5 * mbit, 5 * mbit},
		{"a link that is sent more than it has", 20 * mbit, 5 * mbit, 14.4 * mbit},
	} {
		for _, guarded := range []bool{true, false} {
			p := newPlane(1, 15*mbit)
			p.setPlain(0, c.plain)
			p.rounds(1)
			f := p.flow("waits", c.rate, c.demand, 0, 0)
			for round := range 10 {
				if p.admit(f) {
					t.Errorf("%s, with a meter %v: accepted after %d rounds", c.name, guarded, round)
					break
				}
				p.rounds(1)
				if !guarded {
					p.links[0].guard = 0
				}
			}
		}
	}
}

// A flow that waits is accepted when there is room for it, however much it sends meanwhile, and
// the traffic of others that wait is not in its way.
func TestWaitingFlowsAreAccepted(t *testing.T) {
	p := newPlane(2, 15*mbit)
	p.setPlain(1, 9*mbit)
	p.rounds(1)
	first, second := p.flow("first", 7*mbit, 30*mbit, 0, 1), p.flow("second", 2*mbit, 30*mbit, 1, 1)
	if p.admit(first) {
		t.Fatal("7 Mbit/s are promised beside 9 of 15")
	}
	if !p.admit(second) {
		t.Fatal("2 Mbit/s are refused beside 9 of 15")
	}
	p.rounds(3)
	if p.admit(first) {
		t.Fatal("7 Mbit/s are promised beside 9 and 2 of 15")
	}
	p.setPlain(1, 5*mbit)
	p.rounds(3)
	if !p.admit(first) {
		others, _ := p.book.Others(link(1))
		t.Errorf("7 Mbit/s are refused beside 5 and 2 of 15: %d left, %d of others", p.book.Available(link(1), first.key), others)
	}
	p.rounds(3)
	for n, want := range []float64{8 * mbit, 1 * mbit} {
		if got := float64(p.book.Available(link(n), Key{})); got < want-0.1*mbit || got > want+0.1*mbit {
			t.Errorf("%v are left on link %d, want %v", got, n, want)
		}
	}
}

// Of a link that has not been measured nothing is promised, nor after it has not been measured
// for long.
func TestUnknownUse(t *testing.T) {
	use := Use{Capacity: 10 * mbit, Unknown: true}
	b := New(func(Link) Use { return use })
	now := time.Unix(1_800_000_000, 0)
	b.SetClock(func() time.Time { return now })
	if short := b.Short(promise("a", mbit, 1)); short == nil || !short.Unknown {
		t.Errorf("Short = %v, want one of a link that is not measured", short)
	}
	enforced := promise("class", mbit, 1)
	enforced.Enforced = true
	if short := b.Short(enforced); short != nil {
		t.Errorf("a promise that queues enforce: %v", short)
	}
	use = Use{Capacity: 10 * mbit, Used: 4 * mbit, Until: now.Add(15 * time.Second)}
	if err := b.Admit(promise("a", mbit, 1)); err != nil {
		t.Fatal(err)
	}
	use = Use{Capacity: 10 * mbit, Unknown: true}
	if got := b.Available(link(1), Key{}); got != 5*mbit {
		t.Errorf("%d are available as long as the measurement says something", got)
	}
	now = now.Add(16 * time.Second)
	if got := b.Available(link(1), Key{}); got != 0 {
		t.Errorf("%d are available afterwards", got)
	}
}

// What a promise holds on a link can be promised to it again, whatever is sent there.
func TestHolds(t *testing.T) {
	p := newPlane(1, 15*mbit)
	p.rounds(1)
	f := p.flow("a", 5*mbit, 5*mbit, 0, 0)
	if !p.admit(f) {
		t.Fatal("refused on an empty link")
	}
	p.setPlain(0, 20*mbit)
	p.rounds(3)
	again := p.promise(f, false)
	if p.book.Short(again) == nil {
		t.Error("a full link has room")
	}
	again.Holds = true
	if short := p.book.Short(again); short != nil {
		t.Errorf("what it holds: %v", short)
	}
	again.Shares[0].Rate++
	if p.book.Short(again) == nil {
		t.Error("more than it holds can be promised on a full link")
	}
}

// A full link with traffic that nobody has been promised anything for is told, one that is full
// of promises is not.
func TestFull(t *testing.T) {
	p := newPlane(1, 15*mbit)
	p.rounds(1)
	for i := range 3 {
		if !p.admit(p.flow(fmt.Sprint(i), 5*mbit, 5*mbit, 0, 0)) {
			t.Fatalf("flow %d is refused", i)
		}
	}
	p.rounds(3)
	if p.book.Full(link(0)) {
		t.Error("a link full of promised traffic is told as full")
	}
	p.setPlain(0, 13*mbit)
	p.rounds(3)
	p.flows[0].demand = 0
	p.rounds(1)
	if !p.book.Full(link(0)) {
		t.Error("a link of 15 that is sent 23 Mbit/s is not told as full")
	}
}

// What a queue has sent counts for the promise that it enforces, up to its rate.
func TestQueueCounts(t *testing.T) {
	p := newPlane(1, 15*mbit)
	q := &queued{plane: p}
	class := promise("class", 6*mbit, 0)
	class.Enforced, class.Shares[0].Counter = true, Counter{Switch: 0, Queue: 7, Port: 1}
	p.poll()
	if err := p.book.Admit(class); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ carries, want float64 }{{6 * mbit, 9 * mbit}, {2 * mbit, 9 * mbit}, {10 * mbit, 5 * mbit}} {
		p.setPlain(0, c.carries)
		for range 2 {
			p.pass(5 * time.Second)
			q.bytes += c.carries * 5 / 8
			p.book.Measure(t.Context(), q)
		}
		if got := float64(p.book.Available(link(0), Key{})); got < c.want-0.1*mbit || got > c.want {
			t.Errorf("beside a class of 6 Mbit/s that carries %v there are %v left, want %v", c.carries, got, c.want)
		}
	}
}

// queued is a plane on which all plain traffic is of one queue.
type queued struct {
	*plane
	bytes float64
}

func (q *queued) QueueStats(context.Context, openflow.DatapathID) ([]openflow.QueueStats, error) {
	return []openflow.QueueStats{{Port: 1, Queue: 7, TxBytes: uint64(q.bytes), Duration: openflow.Duration{Sec: 1}}, {Port: 1, Queue: 8, TxBytes: 1 << 40}}, nil
}

// Counters that went back, or that a switch does not keep, say nothing.
func TestCountersThatSayNothing(t *testing.T) {
	p := newPlane(1, 15*mbit)
	p.rounds(1)
	f := p.flow("a", 5*mbit, 5*mbit, 0, 0)
	if !p.admit(f) {
		t.Fatal("refused on an empty link")
	}
	p.rounds(3)
	if got := p.book.Available(link(0), Key{}); got < 9.9*mbit {
		t.Fatalf("%d are left beside 5 of 15", got)
	}
	p.links[0].sent = 0 // the switch has begun anew
	p.book.Measure(t.Context(), p)
	p.rounds(2)
	if got := p.book.Available(link(0), Key{}); got < 9.9*mbit || got > 10*mbit {
		t.Errorf("%d are left after the switch has begun anew", got)
	}
	p.book.Measure(t.Context(), silent{p})
	if got := p.book.Available(link(0), Key{}); got > 10*mbit {
		t.Errorf("%d are left of 15 beside 5", got)
	}
}

// silent keeps no counters of ports.
type silent struct{ *plane }

func (s silent) PortCounters(_ context.Context, d openflow.DatapathID) ([]stats.Sample, error) {
	x := stats.Sample{Port: link(int(d)), Sent: s.now, Received: s.now}
	x.TxBytes = stats.Unsupported
	return []stats.Sample{x}, nil
}

// Whatever flows send, and however old and late readings are, nothing is promised beyond what
// somebody would promise who knows all: the capacity, less the promises, less what plain traffic
// has offered at the least as long as a measurement is used. The noise of package reserve is
// left out of account.
func TestNothingIsPromisedBeyondAPerfectObserver(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		const capacity = 15 * mbit
		p := newPlane(rapid.IntRange(1, 3).Draw(t, "links"), capacity)
		steady := rapid.Bool().Draw(t, "steady")
		late := rapid.IntRange(0, 2000).Draw(t, "delays up to, in ms")
		p.delay = func() time.Duration {
			return time.Duration(rapid.IntRange(0, late).Draw(t, "delay")) * time.Millisecond
		}
		p.fails = func() bool { return rapid.IntRange(0, 9).Draw(t, "fails") == 9 }
		plain := func(n int) { p.setPlain(n, rapid.Float64Range(0, 1.2).Draw(t, "plain")*capacity) }
		for n := range p.links {
			plain(n)
		}
		p.pass(5 * time.Second)
		p.poll()
		admit := func(f *planeFlow) {
			most := map[int]float64{}
			for n := f.from; n <= f.to; n++ {
				most[n] = capacity - p.leastPlain(n, p.since(n))
			}
			if !p.admit(f) {
				return
			}
			accepted++
			for n, most := range most {
				if promised := float64(p.book.Promised(link(n))); promised > most+capacity/skew+1000 {
					t.Fatalf("%.0f are promised on link %d where %.0f are left, with %.0f of plain traffic", promised, n, most, p.links[n].plain)
				}
			}
		}
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			p.pass(time.Duration(rapid.IntRange(0, 6000).Draw(t, "passes, in ms")) * time.Millisecond)
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				p.poll()
			case 1, 2:
				p.measure()
				p.hold()
			case 3:
				if len(p.flows) < 8 {
					from := rapid.IntRange(0, len(p.links)-1).Draw(t, "from")
					f := p.flow(fmt.Sprint(step), rapid.Float64Range(0.5, 12).Draw(t, "rate")*mbit, rapid.Float64Range(0, 30).Draw(t, "demand")*mbit, from, rapid.IntRange(from, len(p.links)-1).Draw(t, "to"))
					admit(f)
				}
			case 4:
				for _, f := range p.flows {
					if !f.accepted {
						admit(f)
					}
				}
			case 5:
				for _, f := range p.flows {
					f.demand = rapid.Float64Range(0, 30).Draw(t, "demand") * mbit
				}
			default:
				if n := rapid.IntRange(0, len(p.links)-1).Draw(t, "link"); !steady {
					plain(n)
				}
			}
		}
	})
	if accepted < 20 {
		t.Errorf("%d flows were accepted: nothing was tried", accepted)
	}
}

// What an earlier link has dropped of a promise is not taken for traffic of a later one.
func TestDroppedBefore(t *testing.T) {
	p := newPlane(2, 15*mbit)
	p.setPlain(1, 5*mbit)
	p.rounds(1)
	if !p.admit(p.flow("a", 5*mbit, 5*mbit, 0, 1)) {
		t.Fatal("refused on an empty link")
	}
	p.rounds(2)
	p.setPlain(0, 40*mbit)
	p.rounds(3)
	if got := p.book.Available(link(1), Key{}); got > 5*mbit {
		t.Errorf("%d are left of 15, less 5 that are promised and 5 of plain traffic", got)
	}
}

// The answers to a flow that fills its link are expected where they go, and stand in nobody's way.
func TestAnswersToFullLink(t *testing.T) {
	p := newPlane(2, 15*mbit)
	p.rounds(1)
	f := p.flow("a", 15*mbit, 15*mbit, 0, 0)
	ask := p.promise(f, false)
	ask.Shares = append(ask.Shares, Share{Link: link(1), Answers: 400_000, Counter: ask.Shares[0].Counter})
	if err := p.book.Admit(ask); err != nil {
		t.Fatal(err)
	}
	f.accepted, f.created = true, p.now
	p.book.RulesInstalled(f.key)
	p.setPlain(1, 300_000) // the answers
	p.rounds(3)
	if got := p.book.Available(link(1), Key{}); got < 15*mbit {
		t.Errorf("%d are left beside answers that are expected", got)
	}
	p.setPlain(1, 3_300_000)
	p.rounds(3)
	if got := p.book.Available(link(1), Key{}); got > 12_200_000 {
		t.Errorf("%d are left beside 3 Mbit/s of others", got)
	}
}
