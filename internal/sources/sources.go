// Package sources keeps a state, such as counters, for each of many senders while they send, so
// that a limit on one sender does not affect the others. Start reading at [Table].
package sources

import "time"

// sweepEvery is the shortest time between two searches for sources that have become idle.
const sweepEvery = time.Second

// Table holds an S for each active source, which is identified by a K. It must not be used
// concurrently.
type Table[K comparable, S any] struct {
	// New returns the initial state of a source.
	New func() *S
	// Most is the largest number of sources in the table.
	Most int
	// ForgetAfter is the time after which an idle source may be removed. Find removes such sources
	// when it adds another one.
	ForgetAfter time.Duration
	// Keep, if not nil, reports whether a source must not be removed even if it is idle.
	Keep func(*S) bool

	of    map[K]*remembered[S]
	swept time.Time
}

type remembered[S any] struct {
	counted *S
	last    time.Time
}

// Find returns the state of a source that is active now. It adds the source if the table does not
// have it, and returns nil if there is no room.
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

// Known returns the state of a source, or nil if the table does not have it.
func (t *Table[K, S]) Known(k K) *S {
	if r := t.of[k]; r != nil {
		return r.counted
	}
	return nil
}

// Len returns the number of sources in the table.
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
