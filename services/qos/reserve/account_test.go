package reserve

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// oneByOne is the estimate of what a link has left, counted promise by promise.
func oneByOne(b *Book, l Link, u Use) uint64 {
	others, promised, unseen, grown, excess := u.Used, uint64(0), uint64(0), uint64(0), uint64(0)
	for _, e := range b.promises {
		rate, on := e.rates[l]
		switch {
		case !on:
			continue
		case rate == 0:
			others -= min(e.maxSeen(l), others)
			continue
		}
		own := min(e.history.maxRate(), rate)
		others -= min(own, others)
		promised += rate
		excess += e.excess(l)
		if e.history.tooShort() {
			unseen += rate - own
			grown = max(grown, u.Used-min(e.before[l]+own, u.Used))
		}
	}
	own := u.Used - others
	if others = max(others-min(unseen, grown, others), excess); others < noise(u, own) {
		others = 0
	}
	return u.Capacity - min(others+promised, u.Capacity)
}

// leftOneByOne is what a link has left for a promise at the best, counted in the same way.
func leftOneByOne(b *Book, l Link, u Use, key Key) uint64 {
	others, promised, excess := u.Used, uint64(0), uint64(0)
	for k, e := range b.promises {
		rate, on := e.rates[l]
		if !on {
			continue
		}
		most := e.maxSeen(l)
		if e.history.tooShort() {
			most = max(most, rate)
		}
		others -= min(most, others)
		if k == key {
			continue
		}
		promised += rate
		excess += e.excess(l)
	}
	return u.Capacity - min(others+excess+promised, u.Capacity)
}

// openOneByOne is what is promised on a link and enforced by no queue, counted in the same way.
func openOneByOne(b *Book, l Link) (open uint64) {
	for _, e := range b.promises {
		if !e.promise.Enforced {
			open += e.rates[l]
		}
	}
	return open
}

// promisedOneByOne are all rates of a book.
func promisedOneByOne(b *Book) (rates map[Key]map[Link]uint64) {
	rates = map[Key]map[Link]uint64{}
	for k, e := range b.promises {
		if e.hasRate() {
			rates[k] = maps.Clone(e.rates)
		}
	}
	return rates
}

// The accounts of links say what counting promise by promise would, whatever has been
// promised, seen, replaced and released.
func TestAccountsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := measured{}
		b := New(n.use)
		told := false
		b.OnRateChange(func() { told = true })
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			for l := range 3 {
				n[link(l)] = Use{Capacity: 1000, Used: rapid.Uint64Range(0, 1200).Draw(t, "used")}
			}
			told = false
			before := promisedOneByOne(b)
			k := key(fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "id")))
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				b.Release(k)
			case 1, 2:
				b.Observe(k, rapid.Uint64Range(0, 300).Draw(t, "seen"))
			default:
				p := Promise{Key: k, Yields: rapid.Bool().Draw(t, "yields"), Enforced: rapid.Bool().Draw(t, "enforced")}
				for range rapid.IntRange(1, 3).Draw(t, "links") {
					s := Share{Link: link(rapid.IntRange(0, 2).Draw(t, "link")), Answers: rapid.Uint64Range(0, 1).Draw(t, "answers") * 20}
					if !p.Yields {
						s.Rate = rapid.Uint64Range(0, 200).Draw(t, "rate")
					}
					p.Shares = append(p.Shares, s)
				}
				b.Restore(p)
			}
			if after := promisedOneByOne(b); !told && !cmp.Equal(before, after) {
				t.Fatalf("not told of a change from %v to %v", before, after)
			}
			for l := range 3 {
				if got, want := b.Unenforced(link(l)), openOneByOne(b, link(l)); got != want {
					t.Fatalf("%d are open, want %d", got, want)
				}
				u := n.use(link(l))
				if got, want := b.EstimateFree(link(l)), oneByOne(b, link(l), u); got != want {
					t.Fatalf("there is room for %d, want %d", got, want)
				}
				if got, want := b.MaxAvailable(link(l), k), leftOneByOne(b, link(l), u, k); got != want {
					t.Fatalf("%d are left, want %d", got, want)
				}
			}
		}
	})
}

// BenchmarkAvailable asks a link with a thousand promises.
func BenchmarkAvailable(b *testing.B) {
	book := New(measured{link(1): {Capacity: 1 << 40}}.use)
	for i := range 1000 {
		book.Restore(promise(fmt.Sprint(i), mbit, 1))
		for range historyLen + 1 {
			book.Observe(key(fmt.Sprint(i)), mbit)
		}
	}
	for b.Loop() {
		book.Available(link(1), key("1"))
	}
}
