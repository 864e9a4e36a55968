// Package sources remembers what is counted of each of many who send, for as long as they send,
// so that one who sends much is bounded and nobody else. Start reading at [Table].
package sources

import "time"

// sweepEvery is how often it is looked who does nothing any more, at most.
const sweepEvery = time.Second

// Table has an S for each source that does something. It may not be used by two goroutines at once.
type Table[K comparable, S any] struct {
	// New makes what is counted of one.
	New func() *S
	// Most is how many are remembered.
	Most int
	// ForgetAfter is when nothing needs to be remembered of one that does nothing.
	ForgetAfter time.Duration
	// Keep says of one that it is not to be forgotten, whatever it does; nil if that is so of none.
	Keep func(*S) bool

	of    map[K]*remembered[S]
	swept time.Time
}

type remembered[S any] struct {
	counted *S
	last    time.Time
}

// Find is what is counted of a source that does something now; nil if there is no room for one more.
func (t *Table[K, S]) Find(k K, now time.Time) *S {
	r := t.of[k]
	if r == nil {
		if t.sweep(now); len(t.of) >= t.Most {
			return nil
		}
		r = &remembered[S]{counted: t.New()}
		if t.of == nil {
			t.of = map[K]*remembered[S]{}
		}
		t.of[k] = r
	}
	r.last = now
	return r.counted
}

// Known is what is counted of a source, nil if it is not remembered.
func (t *Table[K, S]) Known(k K) *S {
	if r := t.of[k]; r != nil {
		return r.counted
	}
	return nil
}

// Len is how many are remembered.
func (t *Table[K, S]) Len() int { return len(t.of) }

func (t *Table[K, S]) sweep(now time.Time) {
	if now.Sub(t.swept) < sweepEvery {
		return
	}
	t.swept = now
	for k, r := range t.of {
		if now.Sub(r.last) > t.ForgetAfter && (t.Keep == nil || !t.Keep(r.counted)) {
			delete(t.of, k)
		}
	}
}
