package kit

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

// board is a ledger that records the number of rules of each key.
type board struct {
	Ledger
	mu    sync.Mutex
	rules map[string]int
	ready bool
	stuck map[string]error // by key, why it changes nothing
}

func (b *board) change(key string, rules int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.stuck[key]; err != nil {
		return err
	}
	if b.rules[key] = rules; rules == 0 {
		delete(b.rules, key)
	}
	return nil
}

func (b *board) Apply(_ context.Context, key string, p network.Program, _ network.ApplyOptions) error {
	return b.change(key, len(p.Rules))
}
func (b *board) Remove(_ context.Context, key string) error { return b.change(key, 0) }
func (b *board) Rules(string) []network.InstalledRule       { return nil }
func (b *board) Ready()                                     { b.mu.Lock(); b.ready = true; b.mu.Unlock() }

func (b *board) set(key string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck[key] = err
}

func (b *board) isReady() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready
}

func (b *board) has(want map[string]int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Equal(b.rules, want)
}

// plan is a reconciler of numbers, each of which stands for that number of rules. times multiplies
// them.
type plan struct {
	*Reconciler[int]
	board *board
	mu    sync.Mutex
	times int
	wait  map[string]chan struct{} // before the program of a name is known
	lucky map[string]bool          // names for which 13 is as good as any number
}

func newPlan(t *testing.T, st store.Store, b *board, configured map[string]int) *plan {
	t.Helper()
	p := &plan{board: b, times: 1, wait: map[string]chan struct{}{}}
	p.Reconciler = NewReconciler(Options[int]{
		Kind:  Kind[int]{Singular: "number", Plural: "numbers", Prefix: "plan/", Event: "number", MaxItems: 64},
		Store: st, Log: slog.New(slog.DiscardHandler),
	}, b, p.program)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, configured) }()
	t.Cleanup(sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}))
	return p
}

func (p *plan) program(ctx context.Context, x Item[int]) (out network.Program, err error) {
	p.mu.Lock()
	wait, times, lucky := p.wait[x.Name], p.times, p.lucky[x.Name]
	p.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return out, ctx.Err()
		}
	}
	if x.Value == 13 && !lucky {
		return out, errors.New("bad luck")
	}
	out.Rules = make([]network.Rule, x.Value*times)
	return out, nil
}

// TestReconciler checks that the declared rules are written when the call returns, and again after
// a change, and that failures are reported and retried.
func TestReconciler(t *testing.T) {
	b := &board{rules: map[string]int{}, stuck: map[string]error{}}
	p := newPlan(t, memstore.New(), b, map[string]int{"fixed": 2})
	eventually(t, "what is configured is there", func() bool { return b.has(map[string]int{"fixed": 2}) && b.isReady() })
	if err := errors.Join(p.Add(t.Context(), "a", 3), p.Add(t.Context(), "unlucky", 13)); err != nil {
		t.Fatal(err)
	}
	if !b.has(map[string]int{"fixed": 2, "a": 3}) || p.LastError("a") != nil || p.LastError("unlucky") == nil {
		t.Errorf("%v, errors %v, %v", b.rules, p.LastError("a"), p.LastError("unlucky"))
	}
	if err := p.Replace(t.Context(), "unlucky", 1, 0); err != nil || p.LastError("unlucky") != nil {
		t.Errorf("%v, %v", err, p.LastError("unlucky"))
	}
	p.mu.Lock()
	p.times = 2
	p.mu.Unlock()
	p.Wake()
	eventually(t, "the network's change is followed", func() bool { return b.has(map[string]int{"fixed": 4, "a": 6, "unlucky": 2}) })
	b.set("a", errors.New("no answer"))
	if err := p.Remove(t.Context(), "a", 0); err != nil || p.LastError("a") == nil || !strings.Contains(p.LastError("a").Error(), "no answer") {
		t.Errorf("%v, %v", err, p.LastError("a"))
	}
	b.set("a", nil)
	p.Wake()
	eventually(t, "what is left is removed", func() bool { return b.has(map[string]int{"fixed": 4, "unlucky": 2}) })
	eventually(t, "and forgotten", func() bool {
		p.Reconciler.mu.Lock()
		defer p.Reconciler.mu.Unlock()
		return slices.Equal(slices.Sorted(maps.Keys(p.states)), []string{"fixed", "unlucky"})
	})
}

// TestReconcilerItemsDoNotWait checks that an item whose rules are not known yet delays no other,
// after a change by the API, by the network or by another controller.
func TestReconcilerItemsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := &board{rules: map[string]int{}, stuck: map[string]error{}}, memstore.New()
		p := newPlan(t, st, b, nil)
		other := newPlan(t, st, &board{rules: map[string]int{}, stuck: map[string]error{}}, nil)
		<-p.Loaded()
		<-other.Loaded()
		began, slow := time.Now(), make(chan struct{})
		p.mu.Lock()
		p.wait["slow"] = slow
		p.mu.Unlock()
		added := make(chan error, 1)
		go func() { added <- p.Add(t.Context(), "slow", 1) }()
		synctest.Wait()
		if err := p.Add(t.Context(), "quick", 1); err != nil || !b.has(map[string]int{"quick": 1}) {
			t.Errorf("%v, rules %v", err, b.rules)
		}
		if err := other.Add(t.Context(), "elsewhere", 1); err != nil {
			t.Error(err)
		}
		eventually(t, "another controller's is written", func() bool { return b.has(map[string]int{"quick": 1, "elsewhere": 1}) })
		p.mu.Lock()
		p.times = 2
		p.mu.Unlock()
		p.Wake()
		eventually(t, "the network's change is followed", func() bool { return b.has(map[string]int{"quick": 2, "elsewhere": 2}) })
		if d := time.Since(began); d >= reconcileTimeout {
			t.Errorf("the others have waited for the slow one: all of it took %v", d)
		}
		close(slow)
		if err := <-added; err != nil {
			t.Error(err)
		}
		eventually(t, "the slow one is written as it is now, too", func() bool { return b.has(map[string]int{"slow": 2, "quick": 2, "elsewhere": 2}) })
	})
}

// TestReconcile checks that nothing is written before Await has returned, that calls meanwhile are
// answered afterwards, and that a call during an attempt gets the changes since its start.
func TestReconcile(t *testing.T) {
	b := &board{rules: map[string]int{}, stuck: map[string]error{}}
	p := &plan{board: b, times: 1, wait: map[string]chan struct{}{}}
	looks, await := atomic.Int32{}, make(chan struct{})
	p.Reconciler = NewReconciler(Options[int]{
		Kind:  Kind[int]{Singular: "number", Plural: "numbers", Prefix: "plan/", Event: "number", MaxItems: 64},
		Store: memstore.New(), Log: slog.New(slog.DiscardHandler),
	}, b, func(ctx context.Context, x Item[int]) (network.Program, error) {
		if x.Name == "a" { // all are looked at once at the start, and may be still
			looks.Add(1)
		}
		return p.program(ctx, x)
	})
	p.Await = func(context.Context) { <-await }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, map[string]int{"a": 2, "unlucky": 13}) }()
	<-p.Loaded()
	short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if err := p.Reconcile(short, "a"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "just been started") || !b.has(map[string]int{}) || b.isReady() {
		t.Errorf("%v, rules %v", err, b.rules)
	}
	close(await)
	if err := p.Reconcile(t.Context(), "a"); err != nil || !b.has(map[string]int{"a": 2}) {
		t.Errorf("%v, rules %v", err, b.rules)
	}
	if err := p.Reconcile(t.Context(), "unlucky"); err == nil || !strings.Contains(err.Error(), "bad luck") {
		t.Errorf("%v, want what the program says", err)
	}
	slow := make(chan struct{})
	p.mu.Lock()
	p.wait["a"] = slow
	p.mu.Unlock()
	looks.Store(0)
	const callers = 50
	errs := make(chan error, callers+1)
	go func() { errs <- p.Reconcile(t.Context(), "a") }()
	eventually(t, "the first is looked at", func() bool { return looks.Load() == 1 })
	p.mu.Lock()
	p.times = 3
	p.mu.Unlock()
	for range callers {
		go func() { errs <- p.Reconcile(t.Context(), "a") }()
	}
	eventually(t, "the others wait", func() bool { p.Reconciler.mu.Lock(); defer p.Reconciler.mu.Unlock(); return p.states["a"].next != nil })
	close(slow)
	for range callers + 1 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := looks.Load(); !b.has(map[string]int{"a": 6}) || n > callers+1 {
		t.Errorf("rules %v after %d looks", b.rules, n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := p.Reconcile(t.Context(), "a"); err == nil {
		t.Error("after the end something is looked at")
	}
}

// TestEndRemovesNoRules checks that a last attempt after the end of the collection removes no
// rules.
func TestEndRemovesNoRules(t *testing.T) {
	b := &board{rules: map[string]int{}, stuck: map[string]error{}}
	r := NewReconciler(Options[int]{
		Kind:  Kind[int]{Singular: "number", Plural: "numbers", Prefix: "plan/", Event: "number", MaxItems: 64},
		Store: memstore.New(), Log: slog.New(slog.DiscardHandler),
	}, b, func(context.Context, Item[int]) (network.Program, error) {
		return network.Program{Rules: make([]network.Rule, 2)}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, map[string]int{"a": 1}) }()
	<-r.Loaded()
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	_ = b.change("a", 2) // it may have ended before it was applied
	r.states["a"] = &itemState{name: "a"}
	if r.queueAll(ctx); len(r.Items()) != 0 || !b.has(map[string]int{"a": 2}) {
		t.Errorf("%d items, rules %v", len(r.Items()), b.rules)
	}
}

// TestReadyWhenItemsAreKnown checks that rules from before a restart stay until the rules of each
// loaded item are known or the item is removed. Until then it is not known which rules belong to an
// item.
func TestReadyWhenItemsAreKnown(t *testing.T) {
	st := memstore.New()
	newBoard := func() *board { return &board{rules: map[string]int{}, stuck: map[string]error{}} }
	p := newPlan(t, st, newBoard(), map[string]int{"unlucky": 13, "unluckier": 13, "a": 1})
	<-p.Loaded()
	if err := p.Reconcile(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := p.Reconcile(t.Context(), "unlucky"); err == nil || p.board.isReady() {
		t.Fatalf("%v, and the ledger is ready: %v", err, p.board.isReady())
	}
	if err := p.Add(t.Context(), "new", 13); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.lucky = map[string]bool{"unlucky": true}
	p.mu.Unlock()
	if err := p.Reconcile(t.Context(), "unlucky"); err != nil || p.board.isReady() {
		t.Fatalf("%v, and the ledger is ready before the last item is known: %v", err, p.board.isReady())
	}
	p.board.set("unluckier", errors.New("no answer"))
	p.mu.Lock()
	p.lucky["unluckier"] = true
	p.mu.Unlock()
	if err := p.Reconcile(t.Context(), "unluckier"); err == nil {
		t.Fatal("what could not be written has no error")
	}
	eventually(t, "the ledger is ready, though one item is not written, and a new one not known", p.board.isReady)

	again := newPlan(t, memstore.New(), newBoard(), nil)
	eventually(t, "without items the ledger is ready at once", again.board.isReady)
}

// TestPlace checks that a reconciler with Place leaves the writing to it: callers get its error,
// other rounds are marked as not requested, and the ledger is ready when it knows all rules.
func TestPlace(t *testing.T) {
	b := &board{rules: map[string]int{}, stuck: map[string]error{}}
	r := NewReconciler(Options[int]{
		Kind:  Kind[int]{Singular: "number", Plural: "numbers", Prefix: "plan/", Event: "number", MaxItems: 64},
		Store: memstore.New(), Log: slog.New(slog.DiscardHandler),
	}, b, nil)
	partly, unknown := errors.New("half of it"), errors.New("bad luck")
	var mu sync.Mutex
	rounds, lucky := map[bool]int{}, false
	r.Place = func(_ context.Context, x Item[int], requested bool) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		rounds[requested]++
		if x.Value == 13 && !lucky {
			return false, unknown
		}
		return true, errors.Join(b.change(x.Name, x.Value), partly)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, map[string]int{"a": 2, "b": 13}) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	<-r.Loaded()
	if err := r.Reconcile(t.Context(), "a"); !errors.Is(err, partly) || !b.has(map[string]int{"a": 2}) {
		t.Errorf("a: %v", err)
	}
	if err := r.Reconcile(t.Context(), "b"); !errors.Is(err, unknown) || !errors.Is(r.LastError("b"), unknown) || b.isReady() {
		t.Errorf("b: %v, ready %v", err, b.isReady())
	}
	mu.Lock()
	lucky = true
	mu.Unlock()
	r.Wake()
	eventually(t, "a round that nobody asked for", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return rounds[true] > 0 && rounds[false] > 0
	})
	eventually(t, "all rules are known", b.isReady)
	eventually(t, "both are there", func() bool { return b.has(map[string]int{"a": 2, "b": 13}) })
	if err := r.Add(t.Context(), "c", 1); err != nil {
		t.Fatal(err)
	}
	if err := r.Remove(t.Context(), "c", 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what is removed is gone", func() bool { return b.has(map[string]int{"a": 2, "b": 13}) })
}
