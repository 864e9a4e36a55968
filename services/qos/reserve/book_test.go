package reserve

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

const mbit = 1_000_000

func link(i int) Link { return topology.PortRef{Switch: openflow.DatapathID(i), Port: 1} }

func key(id string) Key { return Key{Owner: "test", ID: id} }

// measured is a measurement that the test sets.
type measured map[Link]Use

func (n measured) use(l Link) Use { return n[l] }

func promise(id string, rate uint64, links ...int) Promise {
	p := Promise{Key: key(id)}
	for _, l := range links {
		p.Shares = append(p.Shares, Share{Link: link(l), Rate: rate})
	}
	return p
}

func TestAdmitAllOrNothing(t *testing.T) {
	b := New(measured{link(1): {Capacity: 15 * mbit, Used: 0}, link(2): {Capacity: 10 * mbit, Used: 3 * mbit}, link(3): {}}.use)
	var short *Shortage
	if err := b.Admit(promise("a", 8*mbit, 1, 2)); !errors.As(err, &short) || short.Link != link(2) || short.Available != 7*mbit {
		t.Fatalf("err = %v", err)
	}
	if got := b.Available(link(1), Key{}); got != 15*mbit {
		t.Fatalf("after a refusal %d are available on the first link", got)
	}
	if err := b.Admit(promise("a", 7*mbit, 1, 2)); err != nil {
		t.Fatal(err)
	}
	if err := b.Admit(promise("b", 9*mbit, 1)); err == nil {
		t.Fatal("more was promised than is there")
	}
	if err := b.Admit(promise("b", 1, 3)); !errors.As(err, &short) || short.Capacity != 0 {
		t.Fatalf("a link of unknown capacity: %v", err)
	}
	if !b.Release(key("a")) || b.Release(key("a")) || len(b.Reservations()) != 0 {
		t.Fatal("the promise was not given up")
	}
}

// A promise fades into the measurement: at no time is the flow counted twice, and
// at no time not at all.
func TestFading(t *testing.T) {
	n := measured{link(1): {Capacity: 15 * mbit, Used: 0}}
	b := New(n.use)
	if err := b.Admit(promise("a", 10*mbit, 1)); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct{ used, seen, want uint64 }{
		{0, 0, 5 * mbit},                 // nothing measured yet
		{10 * mbit, 10 * mbit, 5 * mbit}, // measured: what the link carries more is taken for the flow's
		{10 * mbit, 10 * mbit, 5 * mbit}, // two readings: it is known to be the flow's
		{12 * mbit, 12 * mbit, 3 * mbit}, // more than promised counts as it is
		{4 * mbit, 4 * mbit, 5 * mbit},   // it pauses: what was promised stays promised
		{4 * mbit, 4 * mbit, 5 * mbit},
		{9 * mbit, 4 * mbit, 0}, // somebody else's traffic
	} {
		n[link(1)] = Use{Capacity: 15 * mbit, Used: step.used}
		b.Observe(key("a"), step.seen)
		if got := b.EstimateFree(link(1)); got != step.want {
			t.Errorf("step %d: %d available, want %d", i, got, step.want)
		}
	}
}

// What yields is free for promises, and what discovery sends is no hindrance.
func TestYields(t *testing.T) {
	n := measured{link(1): {Capacity: 15 * mbit, Used: 9 * mbit}}
	b := New(n.use)
	b.Restore(Promise{Key: key("y"), Shares: []Share{{Link: link(1)}}, Yields: true})
	if got := b.EstimateFree(link(1)); got != 6*mbit {
		t.Fatalf("before it is seen %d are available", got)
	}
	b.Observe(key("y"), 8_900_000)
	if got := b.EstimateFree(link(1)); got != 15*mbit {
		t.Fatalf("%d are available beside what yields and 0.1 Mbit/s of probes", got)
	}
	n[link(1)] = Use{Capacity: 15 * mbit, Used: 12 * mbit}
	if got := b.EstimateFree(link(1)); got != 11_900_000 {
		t.Fatalf("%d are available beside traffic of others", got)
	}
	if b.Promised(link(1)) != 0 {
		t.Fatal("something was promised to what yields")
	}
}

// What may be noise grows with the traffic of promises, and ends at a hundredth of the
// link: what is more is somebody's, and stands against promises.
func TestNoise(t *testing.T) {
	const gbit = 1000 * mbit
	n := measured{}
	b := New(n.use)
	b.Restore(promise("a", 2*gbit, 1))
	for range historyLen + 1 {
		b.Observe(key("a"), 2*gbit)
	}
	for _, c := range []struct{ used, want uint64 }{
		{2*gbit + 20*mbit, 8 * gbit},
		{2*gbit + 21*mbit, 8*gbit - 21*mbit},
		{2*gbit + 90*mbit, 8*gbit - 90*mbit},
	} {
		n[link(1)] = Use{Capacity: 10 * gbit, Used: c.used}
		if got := b.EstimateFree(link(1)); got != c.want {
			t.Errorf("with %d used %d are available, want %d", c.used, got, c.want)
		}
	}
}

// However many promises pile up on a link, the noise that is not held against them does
// not: with what is nobody's, they exceed the link by a hundredth at most.
func TestNoiseDoesNotPileUp(t *testing.T) {
	const capacity, others = 100 * mbit, 900_000
	n := measured{}
	b := New(n.use)
	carried := uint64(0)
	for i := range 1000 {
		n[link(1)] = Use{Capacity: capacity, Used: carried + others}
		id := fmt.Sprint(i)
		if b.Admit(promise(id, mbit, 1)) != nil {
			break
		}
		carried += mbit
		n[link(1)] = Use{Capacity: capacity, Used: carried + others}
		for range historyLen + 1 {
			b.Observe(key(id), mbit)
		}
	}
	if carried+others > capacity+capacity/skew || carried < 98*mbit {
		t.Errorf("%d are promised beside %d of nobody's, of %d", carried, others, capacity)
	}
}

// Answers are no hindrance where they are expected, promised or not, and hide no more of
// what others send than that.
func TestAnswers(t *testing.T) {
	n := measured{link(1): {Capacity: 10 * mbit, Used: 0}, link(2): {Capacity: 15 * mbit, Used: 300_000}}
	b := New(n.use)
	b.Restore(Promise{Key: key("a"), Shares: []Share{{Link: link(1), Rate: 10 * mbit}, {Link: link(2), Answers: 300_000}}})
	if got := b.EstimateFree(link(2)); got != 15*mbit {
		t.Errorf("beside answers alone %d are available", got)
	}
	for range historyLen + 1 {
		b.Observe(key("a"), 10*mbit)
	}
	n[link(2)] = Use{Capacity: 15 * mbit, Used: 8_300_000}
	if got := b.EstimateFree(link(2)); got != 7*mbit {
		t.Errorf("beside answers and 8 Mbit/s of others %d are available", got)
	}
	b.Restore(Promise{Key: key("y"), Yields: true, Shares: []Share{{Link: link(2), Answers: 200_000}}})
	for range historyLen + 1 {
		b.Observe(key("y"), 10*mbit)
	}
	if got := b.EstimateFree(link(2)); got != 7_200_000 {
		t.Errorf("beside answers to what yields %d are available", got)
	}
	if got := b.MaxAvailable(link(2), key("z")); got != 7_200_000 {
		t.Errorf("%d are left", got)
	}
}

// The counters of a flow are brought up to date only now and then: a reading that shows
// too little of it does not make its traffic that of others.
func TestLaggingCounters(t *testing.T) {
	n := measured{link(1): {Capacity: 25 * mbit, Used: 20 * mbit}}
	b := New(n.use)
	for _, id := range []string{"a", "b"} {
		b.Restore(promise(id, 10*mbit, 1))
		for _, rate := range []uint64{10, 10, 14, 6} {
			b.Observe(key(id), rate*mbit)
		}
	}
	if got := b.EstimateFree(link(1)); got != 5*mbit {
		t.Errorf("%d are available", got)
	}
}

// While a promise is young, its traffic is no danger to others; traffic of nobody is.
func TestLeft(t *testing.T) {
	n := measured{link(1): {Capacity: 25 * mbit, Used: 10 * mbit}}
	b := New(n.use)
	b.Restore(promise("a", 10*mbit, 1))
	for range historyLen + 1 {
		b.Observe(key("a"), 10*mbit)
	}
	b.Restore(promise("b", 10*mbit, 1))
	n[link(1)] = Use{Capacity: 25 * mbit, Used: 20 * mbit}
	if got := b.MaxAvailable(link(1), key("a")); got != 15*mbit {
		t.Errorf("beside a young promise %d are left", got)
	}
	if got := b.EstimateFree(link(1)); got != 5*mbit {
		t.Errorf("a new promise would count on %d", got)
	}
	for range historyLen + 1 {
		b.Observe(key("b"), 5*mbit)
	}
	n[link(1)] = Use{Capacity: 25 * mbit, Used: 25 * mbit}
	if got := b.MaxAvailable(link(1), key("a")); got != 5*mbit {
		t.Errorf("beside 10 Mbit/s of nobody's %d are left", got)
	}
}

func TestReplace(t *testing.T) {
	p := newPlane(3, 10*mbit)
	p.rounds(1)
	f := p.flow("a", 9*mbit, 9*mbit, 1, 1)
	if !p.admit(f) {
		t.Fatal("refused on an empty link")
	}
	p.rounds(3)
	b := p.book
	if got := b.Available(link(1), key("a")); got < 9.9*mbit {
		t.Fatalf("%d are available for the promise's own flow", got)
	}
	if f.to = 2; !p.admit(f) {
		t.Fatal("its own traffic stood in its way")
	}
	if f.from = 2; !p.admit(f) {
		t.Fatal("its own traffic stood in its way")
	}
	if lines := b.Reservations(); len(lines) != 1 || lines[0].Link != link(2).String() || lines[0].Promised != 9*mbit {
		t.Fatalf("lines: %+v", lines)
	}
}

// Two requests in the same millisecond are never both promised the last capacity:
// 1,000 repetitions of simultaneous requests for overlapping links.
func TestLastCapacityOnce(t *testing.T) {
	for round := range 1000 {
		b := New(measured{link(1): {Capacity: 10 * mbit, Used: 0}, link(2): {Capacity: 10 * mbit, Used: 0}, link(3): {Capacity: 10 * mbit, Used: 0}}.use)
		var wg sync.WaitGroup
		start := make(chan struct{})
		results := make([]error, 4)
		for i := range results {
			wg.Go(func() {
				<-start
				results[i] = b.Admit(promise(fmt.Sprint(i), 10*mbit, 1+i%2, 2+i%2))
			})
		}
		close(start)
		wg.Wait()
		won := 0
		for _, err := range results {
			if err == nil {
				won++
			}
		}
		if won != 1 { // all four need link 2
			t.Fatalf("round %d: the last capacity was promised to %d", round, won)
		}
	}
}

// Whatever is admitted, replaced and released, no link is ever promised beyond its
// capacity, and nothing is left when all is released.
func TestNeverBeyondCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := measured{}
		for l := range 4 {
			c := rapid.Uint64Range(1, 100).Draw(t, "capacity")
			n[link(l)] = Use{Capacity: c, Used: rapid.Uint64Range(0, c).Draw(t, "used")}
		}
		b := New(n.use)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			id := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "id"))
			if rapid.Bool().Draw(t, "release") {
				b.Release(key(id))
				continue
			}
			p := Promise{Key: key(id)}
			for range rapid.IntRange(1, 3).Draw(t, "links") {
				p.Shares = append(p.Shares, Share{Link: link(rapid.IntRange(0, 3).Draw(t, "link")), Rate: rapid.Uint64Range(1, 60).Draw(t, "rate")})
			}
			_ = b.Admit(p)
			for _, line := range b.Reservations() {
				if line.Promised > line.Capacity {
					t.Fatalf("link %v: %d promised beside %d used of %d", line.Link, line.Promised, line.Used, line.Capacity)
				}
			}
		}
		for _, p := range b.Promises() {
			b.Release(p.Key)
		}
		if left := b.Reservations(); len(left) != 0 {
			t.Fatalf("left: %+v", left)
		}
	})
}

func BenchmarkAdmit(b *testing.B) {
	n := measured{}
	for l := range 100 {
		n[link(l)] = Use{Capacity: 1 << 40}
	}
	book := New(n.use)
	for i := range 1000 {
		_ = book.Admit(promise(fmt.Sprint(i), mbit, rand.IntN(100), rand.IntN(100), rand.IntN(100)))
	}
	for b.Loop() {
		_ = book.Admit(promise("x", mbit, 1, 2, 3))
		book.Release(key("x"))
	}
}

// What queues enforce is admitted beside any measured traffic, but never beside more
// promises than the link can hold.
func TestEnforced(t *testing.T) {
	b := New(measured{link(1): {Capacity: 10 * mbit, Used: 10 * mbit}}.use)
	p := promise("a", 6*mbit, 1)
	if err := b.Admit(p); err == nil {
		t.Fatal("a full link was promised")
	}
	p.Enforced = true
	if err := b.Admit(p); err != nil {
		t.Fatal(err)
	}
	second := promise("b", 5*mbit, 1)
	second.Enforced = true
	var short *Shortage
	if err := b.Admit(second); !errors.As(err, &short) || short.Available != 4*mbit {
		t.Fatalf("err = %v", err)
	}
	if err := b.Admit(p); err != nil {
		t.Errorf("the same promise again: %v", err)
	}
}

// What a promise is known to carry beyond its rate is traffic of others for all but
// itself: two readings say so, one may be of two times.
func TestExcessIsSomebodys(t *testing.T) {
	n := measured{link(1): {Capacity: 20 * mbit, Used: 20 * mbit}}
	b := New(n.use)
	for _, id := range []string{"polite", "rude"} {
		b.Restore(promise(id, 5*mbit, 1))
	}
	for range historyLen + 1 {
		b.Observe(key("polite"), 5*mbit)
		b.Observe(key("rude"), 5*mbit)
	}
	n[link(1)] = Use{Capacity: 15 * mbit, Used: 15 * mbit}
	b.Observe(key("rude"), 12*mbit)
	if got := b.MaxAvailable(link(1), key("polite")); got != 10*mbit {
		t.Errorf("after one reading of more %d are left", got)
	}
	b.Observe(key("rude"), 12*mbit)
	if got := b.MaxAvailable(link(1), key("polite")); got >= 5*mbit {
		t.Errorf("beside an excess of 7 Mbit/s %d are left", got)
	}
	if got := b.MaxAvailable(link(1), key("rude")); got != 10*mbit {
		t.Errorf("its own excess leaves %d to the one that sends it", got)
	}
}

// A link that has lost capacity does not hold what was promised on it before. Of promises
// that queues enforce only the others of that kind are in the way.
func TestOverbooked(t *testing.T) {
	n := measured{link(1): {Capacity: 20 * mbit, Used: 0}}
	b := New(n.use)
	enforced := promise("class", 6*mbit, 1)
	enforced.Enforced = true
	b.Restore(enforced)
	b.Restore(promise("flow", 6*mbit, 1))
	n[link(1)] = Use{Capacity: 12 * mbit, Used: 0}
	for _, id := range []string{"class", "flow", "nobody"} {
		if short := b.Overbooked(key(id)); short != nil {
			t.Errorf("%s: %v, where all fit", id, short)
		}
	}
	n[link(1)] = Use{Capacity: 10 * mbit, Used: 0}
	if short := b.Overbooked(key("class")); short != nil {
		t.Errorf("the class: %v", short)
	}
	if short := b.Overbooked(key("flow")); short == nil || short.Available != 4*mbit || short.Link != link(1) {
		t.Errorf("the flow: %v", short)
	}
	n[link(1)] = Use{Capacity: 5 * mbit, Used: 0}
	if short := b.Overbooked(key("class")); short == nil || short.Asked != 6*mbit || short.Capacity != 5*mbit {
		t.Errorf("the class, alone too large: %v", short)
	}
	n[link(1)] = Use{}
	if short := b.Overbooked(key("flow")); short != nil {
		t.Errorf("%v, while the capacity is not known", short)
	}
}

// A promise that queues enforce takes the place of those whose traffic it carries.
func TestOver(t *testing.T) {
	n := measured{link(1): {Capacity: 10 * mbit, Used: 0}}
	b := New(n.use)
	b.Restore(promise("flow", 8*mbit, 1))
	class := promise("class", 8*mbit, 1)
	class.Enforced = true
	if b.Admit(class) == nil {
		t.Fatal("16 Mbit/s are promised on 10")
	}
	class.Replaces = []Key{key("flow"), key("nobody")}
	if err := b.Admit(class); err != nil {
		t.Errorf("beside the flow that it carries: %v", err)
	}
	class.Shares[0].Rate = 11 * mbit
	if b.Admit(class) == nil {
		t.Error("more than the link has was promised")
	}
}
