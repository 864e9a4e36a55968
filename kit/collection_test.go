package kit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shelf is a collection of numbers, none of which is negative. It records the changes of which it
// was notified.
type shelf struct {
	*Collection[int]
	mu     sync.Mutex
	told   map[string]int // as the changes say
	events []string
	hold   func() // called before changes are taken
	used   string // is in use
}

func newShelf(st store.Store) *shelf {
	s := &shelf{told: map[string]int{}}
	s.Collection = NewCollection(Options[int]{
		Kind: Kind[int]{
			Singular: "number", Plural: "numbers", Prefix: "shelf/", Event: "number", MaxItems: 8,
			Decode: func(b []byte) (n int, err error) {
				if err = json.Unmarshal(b, &n); err == nil && n < 0 {
					err = errors.New("negative")
				}
				return n, err
			},
			InUse: func(name string) error {
				if name == s.used {
					return ErrInUse
				}
				return nil
			},
		},
		Store: st, Log: slog.New(slog.DiscardHandler),
		Publish: func(kind string, _ any) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, kind)
		},
		Changed: s.changed,
	})
	return s
}

func (s *shelf) changed(_ context.Context, all []Change[int]) {
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		hold()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range all {
		if c.After == nil {
			delete(s.told, c.Name)
		} else {
			s.told[c.Name] = c.After.Value
		}
	}
}

// values returns the values in force.
func (s *shelf) values() map[string]int {
	out := map[string]int{}
	for _, x := range s.Items() {
		out[x.Name] = x.Value
	}
	return out
}

func (s *shelf) heard() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.told)
}

// run loads and runs a collection, and returns the function that ends it.
func (s *shelf) run(t *testing.T, configured map[string]int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if err := s.Load(ctx, configured); err != nil {
		cancel()
		t.Fatal(err)
	}
	maps.Copy(s.told, s.values())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}

// TestChanges checks that a change is in force and published when the call returns, and that a
// refused change has no effect.
func TestChanges(t *testing.T) {
	s := newShelf(memstore.New())
	s.run(t, map[string]int{"fixed": 1})
	ctx := t.Context()
	revision := func(name string) int64 { x, _ := s.Item(name); return x.Revision }
	for _, step := range []struct {
		name string
		do   func() error
		err  error
		want map[string]int
	}{
		{"add", func() error { return s.Add(ctx, "a", 1) }, nil, map[string]int{"fixed": 1, "a": 1}},
		{"add what is there", func() error { return s.Add(ctx, "a", 2) }, ErrExists, map[string]int{"fixed": 1, "a": 1}},
		{"replace", func() error { return s.Replace(ctx, "a", 2, revision("a")) }, nil, map[string]int{"fixed": 1, "a": 2}},
		{"replace an older one", func() error { return s.Replace(ctx, "a", 3, revision("a")-1) }, ErrChanged, map[string]int{"fixed": 1, "a": 2}},
		{"replace any", func() error { return s.Replace(ctx, "a", 3, 0) }, nil, map[string]int{"fixed": 1, "a": 3}},
		{"replace what is not there", func() error { return s.Replace(ctx, "b", 3, 0) }, ErrUnknown, map[string]int{"fixed": 1, "a": 3}},
		{"add what is configured", func() error { return s.Add(ctx, "fixed", 3) }, ErrConfigured, map[string]int{"fixed": 1, "a": 3}},
		{"replace what is configured", func() error { return s.Replace(ctx, "fixed", 3, 0) }, ErrConfigured, map[string]int{"fixed": 1, "a": 3}},
		{"remove what is configured", func() error { return s.Remove(ctx, "fixed", 0) }, ErrConfigured, map[string]int{"fixed": 1, "a": 3}},
		{"remove an older one", func() error { return s.Remove(ctx, "a", revision("a")-1) }, ErrChanged, map[string]int{"fixed": 1, "a": 3}},
		{"remove", func() error { return s.Remove(ctx, "a", 0) }, nil, map[string]int{"fixed": 1}},
		{"remove what is not there", func() error { return s.Remove(ctx, "a", 0) }, ErrUnknown, map[string]int{"fixed": 1}},
	} {
		if err := step.do(); !errors.Is(err, step.err) {
			t.Errorf("%s: %v, want %v", step.name, err, step.err)
		}
		if !maps.Equal(s.values(), step.want) || !maps.Equal(s.heard(), step.want) {
			t.Errorf("%s: there is %v, told %v, want %v", step.name, s.values(), s.heard(), step.want)
		}
	}
	if got := strings.Join(s.events, " "); got != "number.added number.changed number.changed number.removed" {
		t.Errorf("events %s", got)
	}
}

// TestMaxItems checks the bound with many concurrent writers of one controller.
func TestMaxItems(t *testing.T) {
	s := newShelf(memstore.New())
	s.run(t, nil)
	var wg sync.WaitGroup
	for i := range 3 * s.MaxItems {
		wg.Go(func() {
			if err := s.Add(t.Context(), fmt.Sprint(i), i); err != nil && !errors.Is(err, ErrFull) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(s.Items()); n != s.MaxItems {
		t.Errorf("%d items, want %d", n, s.MaxItems)
	}
	too := map[string]int{"0": 1, "other": 1} // it replaces another item
	if err := s.Fits(too); !errors.Is(err, ErrFull) && len(s.Items()) == s.MaxItems {
		if _, there := s.Item("0"); !there || err == nil {
			t.Errorf("%v", err)
		}
	}
}

// TestTwoWriters checks that two controllers with one store, which change the same names at random,
// have the same items in the end, and that the published changes lead there.
func TestTwoWriters(t *testing.T) {
	st := memstore.New()
	both := []*shelf{newShelf(st), newShelf(st)}
	for _, s := range both {
		s.run(t, nil)
	}
	var wg sync.WaitGroup
	for i, s := range both {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for n := range 2000 {
				name := fmt.Sprint(r.IntN(6))
				var err error
				switch r.IntN(3) {
				case 0:
					err = s.Add(t.Context(), name, n)
				case 1:
					err = s.Replace(t.Context(), name, n, 0)
				case 2:
					err = s.Remove(t.Context(), name, 0)
				}
				if err != nil && !errors.Is(err, ErrExists) && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrChanged) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	stored, err := store.ListJSON[record](t.Context(), st, "shelf/")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for name, r := range stored {
		n := 0
		if err := json.Unmarshal(r.Value, &n); err != nil {
			t.Fatal(err)
		}
		want[name] = n
	}
	for i, s := range both {
		eventually(t, fmt.Sprintf("writer %d has what is stored", i), func() bool {
			return maps.Equal(s.values(), want) && maps.Equal(s.heard(), want)
		})
	}
}

// TestConfigured checks that configured items replace earlier configured ones, and leave those of
// the API alone, while the collection runs and from one start to the next.
func TestConfigured(t *testing.T) {
	st := memstore.New()
	s := newShelf(st)
	stop := s.run(t, map[string]int{"a": 1, "b": 2})
	if err := s.Add(t.Context(), "own", 9); err != nil {
		t.Fatal(err)
	}
	a, _ := s.Item("a")
	if err := s.Configure(t.Context(), map[string]int{"a": 1, "c": 3}); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"a": 1, "c": 3, "own": 9}
	if same, _ := s.Item("a"); !maps.Equal(s.values(), want) || !maps.Equal(s.heard(), want) || same.Revision != a.Revision {
		t.Errorf("%v, told %v, want %v; a was %+v and is %+v", s.values(), s.heard(), want, a, same)
	}
	stop()
	if len(s.Items()) != 0 || !errors.Is(s.Add(t.Context(), "late", 1), errEnded) {
		t.Errorf("after the end there is %v", s.Items())
	}
	s = newShelf(st)
	s.run(t, map[string]int{"c": 4, "own": 10})
	if want := map[string]int{"c": 4, "own": 10}; !maps.Equal(s.values(), want) || len(s.events) != 0 {
		t.Errorf("%v after a start, want %v; events %v", s.values(), want, s.events)
	}
}

// TestInUse checks that an item in use is not removed, and that the API can change it after it has
// left the configuration.
func TestInUse(t *testing.T) {
	s := newShelf(memstore.New())
	s.used = "a"
	s.run(t, map[string]int{"a": 1, "b": 2})
	if err := s.Configure(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if a, there := s.Item("a"); !there || a.Configured || len(s.Items()) != 1 {
		t.Errorf("%+v is kept, of %v", a, s.values())
	}
	if err := s.Remove(t.Context(), "a", 0); !errors.Is(err, ErrInUse) {
		t.Errorf("removed: %v", err)
	}
	if err := s.Put(t.Context(), "a", 5, 0); err != nil || s.values()["a"] != 5 {
		t.Errorf("%v, %v", s.values(), err)
	}
}

// TestEventPayloadAndAbandoned checks that events show EventPayload's value, and that Abandoned is
// called when a value may not have been written.
func TestEventPayloadAndAbandoned(t *testing.T) {
	var told []any
	abandoned := ""
	o := Options[int]{
		Kind: Kind[int]{
			Singular: "number", Prefix: "n/", Event: "number", MaxItems: 1,
			EventPayload: func(int) any { return "a secret" }, Abandoned: func(name string) { abandoned = name },
		},
		Store: memstore.New(), Log: slog.New(slog.DiscardHandler),
		Publish: func(_ string, attrs any) { told = append(told, attrs.(map[string]any)["number"]) },
	}
	s := &shelf{Collection: NewCollection(o)}
	stop := s.run(t, nil)
	if err := s.Put(t.Context(), "a", 1, 0); err != nil || abandoned != "" {
		t.Errorf("%v, %q abandoned", err, abandoned)
	}
	if stop(); !slices.Equal(told, []any{"a secret"}) {
		t.Errorf("told %v", told)
	}
	o.Store = failing{memstore.New()}
	s = &shelf{Collection: NewCollection(o)}
	s.run(t, nil)
	if err := s.Put(t.Context(), "b", 1, 0); !errors.Is(err, errFull) || abandoned != "b" {
		t.Errorf("%v, %q abandoned", err, abandoned)
	}
}

// TestBroken checks that a stored item that cannot be decoded is not in force, and can be replaced
// and removed.
func TestBroken(t *testing.T) {
	st := memstore.New()
	for name, text := range map[string]string{"rubbish": "{", "negative": `{"value":-1}`, "other": `{"thing":1}`, "good": `{"value":1}`} {
		if err := st.Put(t.Context(), "shelf/"+name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	s := newShelf(st)
	s.run(t, nil)
	if want := map[string]int{"good": 1}; !maps.Equal(s.values(), want) {
		t.Fatalf("%v, want %v", s.values(), want)
	}
	if err := errors.Join(s.Add(t.Context(), "rubbish", 2), s.Replace(t.Context(), "negative", 3, 0), s.Remove(t.Context(), "other", 0)); err != nil {
		t.Error(err)
	}
	want := map[string]int{"good": 1, "rubbish": 2, "negative": 3}
	if !maps.Equal(s.values(), want) || !maps.Equal(s.heard(), want) {
		t.Errorf("%v, told %v, want %v", s.values(), s.heard(), want)
	}
	if err := st.Put(t.Context(), "shelf/good", []byte("{")); err != nil { // another program has stored this meanwhile
		t.Fatal(err)
	}
	delete(want, "good")
	eventually(t, "it is in force no more", func() bool { return maps.Equal(s.values(), want) && maps.Equal(s.heard(), want) })
}

// TestWatchFallsBehind checks that a watch that falls behind is opened again, and that no change is
// missed.
func TestWatchFallsBehind(t *testing.T) {
	st := memstore.New()
	s := newShelf(st)
	s.run(t, map[string]int{"a": 1})
	busy, proceed := make(chan struct{}), make(chan struct{})
	s.mu.Lock()
	s.hold = func() { close(busy); <-proceed }
	s.mu.Unlock()
	put := func(name string, n int) {
		if err := st.Put(t.Context(), "shelf/"+name, fmt.Appendf(nil, `{"value":%d}`, n)); err != nil {
			t.Fatal(err)
		}
	}
	put("b", 0)
	<-busy
	s.mu.Lock()
	s.hold = nil
	s.mu.Unlock()
	if err := st.Delete(t.Context(), "shelf/a"); err != nil {
		t.Fatal(err)
	}
	for n := range 5000 {
		put("b", n)
	}
	close(proceed)
	want := map[string]int{"b": 4999}
	eventually(t, "all has been seen", func() bool { return maps.Equal(s.values(), want) && maps.Equal(s.heard(), want) })
	if err := s.Add(t.Context(), "c", 1); err != nil {
		t.Error(err)
	}
}

// failing is a store that refuses changes.
type failing struct{ store.Store }

var errFull = errors.New("disk full")

func (failing) Apply(context.Context, ...store.Op) error { return errFull }

// deaf is a store that can be watched but, while it is deaf, not listed.
type deaf struct {
	store.Store
	mu       sync.Mutex
	deaf     bool
	watching int // watches that have not been given up
}

func (d *deaf) Watch(ctx context.Context, prefix string) (<-chan store.Change, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watching++
	context.AfterFunc(ctx, func() { d.mu.Lock(); d.watching--; d.mu.Unlock() })
	return d.Store.Watch(ctx, prefix)
}

func (d *deaf) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deaf && d.watching > 0 {
		return nil, errFull
	}
	return d.Store.List(ctx, prefix)
}

// TestNoWatchIsLeft checks that the watch is closed after each failed attempt to list the store.
func TestNoWatchIsLeft(t *testing.T) {
	st := &deaf{Store: memstore.New(), deaf: true}
	s := newShelf(st)
	for range 3 {
		if err := s.Load(t.Context(), nil); !errors.Is(err, errFull) {
			t.Fatal(err)
		}
	}
	st.deaf = false
	stop := s.run(t, nil)
	eventually(t, "one watch", func() bool { st.mu.Lock(); defer st.mu.Unlock(); return st.watching == 1 })
	stop()
	eventually(t, "no watch", func() bool { st.mu.Lock(); defer st.mu.Unlock(); return st.watching == 0 })
}

// TestStoreFails checks that a failing store changes nothing, and that a caller whose context ends
// does not wait.
func TestStoreFails(t *testing.T) {
	s := newShelf(failing{memstore.New()})
	s.run(t, nil)
	if err := s.Add(t.Context(), "a", 1); !errors.Is(err, errFull) || len(s.Items()) != 0 {
		t.Errorf("%v, %v", err, s.Items())
	}
	s = newShelf(memstore.New()) // nothing is loaded
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Add(gone, "a", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
