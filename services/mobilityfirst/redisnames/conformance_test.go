package redisnames

import (
	"context"
	"crypto/ed25519"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/namestore"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// anyStore is the interface of both stores.
type anyStore interface {
	Get(b []byte, name frame.GUID) ([]byte, bool, error)
	Write(ctx context.Context, r *record.Record) error
	Start(r *record.Record, done func(changed bool, err error)) error
	Since(ctx context.Context, t time.Time, from frame.GUID, f func(name frame.GUID, written time.Time) bool) error
	Names() uint64
	Close() error
}

// both runs a test on the store on disk and on that in Redis, which have to behave the same.
func both(t *testing.T, test func(*testing.T, anyStore)) {
	t.Run("disk", func(t *testing.T) {
		s, err := namestore.Open(namestore.Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		test(t, s)
	})
	t.Run("redis", func(t *testing.T) { test(t, open(t, three(t), Options{})) })
}

// The store has the newest record of each name; an older one is refused, and writing the same one
// again succeeds without a change.
func TestNewest(t *testing.T) {
	both(t, func(t *testing.T, s anyStore) {
		who, other := somebody(), somebody()
		for _, x := range []struct {
			r       *record.Record
			changed bool
			want    error
		}{
			{sign(t, who, 5, 1), true, nil},
			{sign(t, who, 5, 1), false, nil},
			{sign(t, who, 4, 1), false, record.ErrOld},
			{sign(t, who, 5, 2), false, record.ErrOld},
			{sign(t, who, 6, 3), true, nil},
			{sign(t, who, 5, 1), false, record.ErrOld},
			{sign(t, who, math.MaxUint32, 1), true, nil},
			{sign(t, who, math.MaxUint32+1, 1), true, nil},
			{sign(t, who, math.MaxUint32, 1), false, record.ErrOld},
			{sign(t, who, 1<<53, 1), true, nil},
			{sign(t, who, 1<<53+1, 1), true, nil},
			{sign(t, who, 1<<53, 1), false, record.ErrOld},
			{sign(t, who, 1<<63-1, 1), true, nil},
			{sign(t, who, 1<<63, 1), true, nil},
			{sign(t, who, math.MaxUint64, 1), true, nil},
			{sign(t, who, math.MaxUint64-1, 1), false, record.ErrOld},
			{sign(t, other, 0, 1), true, nil},
		} {
			if changed, err := start(t, s, x.r); !errors.Is(err, x.want) || changed != x.changed {
				t.Errorf("record %d: changed %v, %v; want %v, %v", x.r.Number, changed, err, x.changed, x.want)
			}
		}
		if n := number(t, s, record.NameOfOwner(who)); n != math.MaxUint64 {
			t.Errorf("number %d", n)
		}
		if _, found, err := s.Get(nil, frame.GUID{1}); found || err != nil {
			t.Errorf("a name of nobody: %v, %v", found, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Get(nil, record.NameOfOwner(who)); !errors.Is(err, record.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
		if err := s.Write(t.Context(), sign(t, who, 7, 1)); !errors.Is(err, record.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
		if err := s.Close(); !errors.Is(err, record.ErrClosed) {
			t.Errorf("the second end: %v", err)
		}
	})
}

// start writes a record, and returns the result of Start.
func start(t testing.TB, s anyStore, r *record.Record) (bool, error) {
	t.Helper()
	type end struct {
		changed bool
		err     error
	}
	done := make(chan end, 1)
	if err := s.Start(r, func(changed bool, err error) { done <- end{changed, err} }); err != nil {
		return false, err
	}
	select {
	case e := <-done:
		return e.changed, e.err
	case <-time.After(time.Minute):
		t.Fatal("a write does not end")
		return false, nil
	}
}

// Writes and reads, in any order, behave like a map that keeps the record with the higher number.
func TestLikeMap(t *testing.T) {
	both(t, func(t *testing.T, s anyStore) {
		rapid.Check(t, func(rt *rapid.T) {
			owners := []ed25519.PrivateKey{somebody(), somebody()}
			model := map[int]*record.Record{}
			rt.Repeat(map[string]func(*rapid.T){
				"write": func(rt *rapid.T) {
					who := rapid.IntRange(0, len(owners)-1).Draw(rt, "who")
					r := sign(t, owners[who], rapid.Uint64Range(0, 5).Draw(rt, "number")<<rapid.SampledFrom([]int{0, 31, 61}).Draw(rt, "shift"), rapid.Uint16Range(1, 2).Draw(rt, "port"))
					have := model[who]
					same := have != nil && slices.Equal(have.AppendTo(nil), r.AppendTo(nil))
					newer := have == nil || have.Number < r.Number
					changed, err := start(t, s, r)
					if changed != newer || (err == nil) != (newer || same) || err != nil && !errors.Is(err, record.ErrOld) {
						rt.Fatalf("record %d, newer %v, same %v: changed %v, %v", r.Number, newer, same, changed, err)
					}
					if newer {
						model[who] = r
					}
				},
				"": func(rt *rapid.T) {
					for who, key := range owners {
						b, found, err := s.Get([]byte("before"), record.NameOfOwner(key))
						want := "before"
						if model[who] != nil {
							want = string(model[who].AppendTo([]byte(want)))
						}
						if err != nil || found != (model[who] != nil) || string(b) != want {
							rt.Fatalf("%x, %v, %v; want %x", b, found, err, want)
						}
					}
				},
			})
		})
	})
}

// Writers of one name and of many: each name ends with its highest number, and no write succeeds that another has overtaken.
func TestConcurrentWriters(t *testing.T) {
	both(t, func(t *testing.T, s anyStore) {
		const numbers = 50
		var all sync.WaitGroup
		var owners []ed25519.PrivateKey
		for range 20 {
			who := somebody()
			owners = append(owners, who)
			for n := range numbers {
				r := sign(t, who, uint64(n+1), uint16(n))
				all.Go(func() {
					if err := s.Write(t.Context(), r); err != nil && !errors.Is(err, record.ErrOld) {
						t.Error(err)
					}
					if got := number(t, s, r.GUID()); got < r.Number {
						t.Errorf("number %d after %d", got, r.Number)
					}
				})
			}
		}
		all.Wait()
		for _, who := range owners {
			if n := number(t, s, record.NameOfOwner(who)); n != numbers {
				t.Errorf("number %d", n)
			}
		}
		eventually(t, "so many names are there", func() bool { return s.Names() == uint64(len(owners)) })
	})
}

// Names are found by the time at which they were written, and the search continues where the caller
// has stopped.
func TestSince(t *testing.T) {
	both(t, func(t *testing.T, s anyStore) {
		began := time.Now()
		var want []frame.GUID
		for range 300 {
			who := somebody()
			want = append(want, record.NameOfOwner(who))
			if err := s.Write(t.Context(), sign(t, who, 1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		var got []frame.GUID
		var from frame.GUID
		for more := true; more; { // some at a time, and the last of them again
			if more = false; len(got) > 0 {
				from, got = got[len(got)-1], got[:len(got)-1]
			}
			count := 0
			if err := s.Since(t.Context(), began, from, func(name frame.GUID, written time.Time) bool {
				got = append(got, name)
				if off := written.Sub(began); off < -2*time.Second || off > time.Minute {
					t.Errorf("written %v after the beginning", off)
				}
				count++
				more = count == 70
				return !more
			}); err != nil {
				t.Fatal(err)
			}
		}
		compare := func(a, b frame.GUID) int { return slices.Compare(a[:], b[:]) }
		slices.SortFunc(got, compare)
		slices.SortFunc(want, compare)
		if !slices.Equal(got, want) {
			t.Errorf("%d names, want %d", len(got), len(want))
		}
		if err := s.Since(t.Context(), time.Now().Add(time.Hour), frame.GUID{}, func(name frame.GUID, _ time.Time) bool {
			t.Errorf("%v is written later than now", name)
			return true
		}); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Since(ctx, began, frame.GUID{}, func(frame.GUID, time.Time) bool { return true }); err == nil {
			t.Error("it goes on after the end of its context")
		}
	})
}
