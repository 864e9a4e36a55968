package kit_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store/memstore"
)

// newNumbers returns a reconciler each of whose items is a rule to a port, with an idle timeout.
func newNumbers(l kit.Ledger, prefix string) *kit.Reconciler[int] {
	return kit.NewReconciler(kit.Options[int]{
		Kind:  kit.Kind[int]{Singular: "number", Plural: "numbers", Prefix: prefix, Event: "number", MaxItems: 64},
		Store: memstore.New(), Log: slog.New(slog.DiscardHandler),
	}, l, func(_ context.Context, x kit.Item[int]) (network.Program, error) {
		if x.Value == 13 {
			return network.Program{}, errors.New("bad luck")
		}
		return network.Program{Rules: []network.Rule{
			{Switch: 1, Stage: network.StageSelect, Idle: time.Minute, Actions: []openflow.Action{openflow.Output(uint32(x.Value))}},
			{Switch: 2, Stage: network.StageSelect, Actions: []openflow.Action{openflow.Output(uint32(x.Value))}},
		}}, nil
	})
}

func run(t *testing.T, r *kit.Reconciler[int], configured map[string]int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, configured) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-r.Loaded()
}

// TestEndedRulesStayAway checks that a rule that has expired is not written again by routine, but
// when Reconcile is called for the item, or the rule changes.
func TestEndedRulesStayAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := servicetest.NewLedger()
		r := newNumbers(l, "numbers/")
		run(t, r, nil)
		has := func(what string, rules int) {
			t.Helper()
			if n := len(l.Rules("a")); n != rules {
				t.Errorf("%s: %d rules, want %d", what, n, rules)
			}
		}
		if err := r.Add(t.Context(), "a", 1); err != nil {
			t.Fatal(err)
		}
		has("declared", 2)
		synctest.Wait()
		l.Expire("a")
		r.Wake()
		pause.For(61*time.Second, "looks by routine, every five seconds, and none right now")
		has("ended, and looked at by routine", 1)
		if err := r.Reconcile(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		has("asked for", 2)
		synctest.Wait()
		l.Expire("a")
		pause.For(61*time.Second, "looks by routine, every five seconds, and none right now")
		has("ended again", 1)
		if err := r.Replace(t.Context(), "a", 2, 0); err != nil {
			t.Fatal(err)
		}
		has("declared anew", 2)
	})
}

// TestRoutineWritesNothing checks that routine writes nothing without changes: writing would
// restore a rule that expires at that moment.
func TestRoutineWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := servicetest.NewLedger()
		r := newNumbers(l, "numbers/")
		run(t, r, nil)
		if err := r.Add(t.Context(), "a", 1); err != nil {
			t.Fatal(err)
		}
		written := 0
		l.SetOnApply(func(context.Context, string) error { written++; return nil })
		r.Wake()
		pause.For(11*time.Second, "two looks by routine, every five seconds")
		if synctest.Wait(); written != 0 {
			t.Errorf("written %d times, want never", written)
		}
		if err := r.Reconcile(t.Context(), "a"); err != nil || written != 1 {
			t.Errorf("asked for: written %d times, want once: %v", written, err)
		}
	})
}

// TestOnChange checks that OnChange is called once for each change of an item's rules, and for
// their removal.
func TestOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := servicetest.NewLedger()
		r := newNumbers(l, "numbers/")
		var told []int
		r.OnChange = func(_ context.Context, name string, p network.Program) {
			if now := l.Program(name); len(now.Rules) != len(p.Rules) {
				t.Errorf("told of %d rules, where there are %d", len(p.Rules), len(now.Rules))
			}
			told = append(told, len(p.Rules))
		}
		run(t, r, nil)
		if err := errors.Join(r.Add(t.Context(), "a", 1), r.Reconcile(t.Context(), "a"), r.Replace(t.Context(), "a", 2, 0)); err != nil {
			t.Fatal(err)
		}
		pause.For(61*time.Second, "looks by routine, every five seconds, and none right now")
		if err := errors.Join(r.Replace(t.Context(), "a", 13, 0), r.Remove(t.Context(), "a", 0)); err != nil {
			t.Fatal(err)
		}
		pause.For(61*time.Second, "looks by routine, every five seconds, and none right now")
		if want := []int{2, 2, 0}; len(told) != 3 || told[0] != 2 || told[1] != 2 || told[2] != 0 {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

// TestReadyWhen checks that rules from before a restart stay until ReadyWhen returns true.
func TestReadyWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, items := range []map[string]int{nil, {"a": 1}} {
			l := servicetest.NewLedger()
			r := newNumbers(l, "numbers/")
			var knows atomic.Bool
			r.ReadyWhen = knows.Load
			run(t, r, items)
			pause.For(61*time.Second, "looks by routine, every five seconds, and none right now")
			if l.AtReady() != nil {
				t.Errorf("%v: ready although the service is not", items)
			}
			knows.Store(true)
			r.Wake()
			pause.For(61*time.Second, "looks by routine, every five seconds, and none right now")
			if at := l.AtReady(); at == nil || len(at) != len(items) {
				t.Errorf("%v: at ready there was %v", items, at)
			}
		}
	})
}
