package guard

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mbit = 1_000_000

var at = network.PortRef{Switch: 1, Port: 12}

// newGuard is a guard of links of 15 Mbit/s.
func newGuard() (*Guard, *servicetest.Ledger) {
	rules := servicetest.NewLedger()
	book := reserve.New(func(reserve.Link) reserve.Use { return reserve.Use{Capacity: 15 * mbit} })
	return New(Options{Book: book, Rules: rules, Log: slog.New(slog.DiscardHandler), Interval: time.Second}), rules
}

func promise(g *Guard, rate uint64) {
	g.Book.Restore(reserve.Promise{Key: reserve.Key{ID: "x"}, Shares: []reserve.Share{{Link: at, Rate: rate}}})
}

// A meter that could not be written is tried again, and the present one stays known.
func TestMeterIsTriedAgain(t *testing.T) {
	g, rules := newGuard()
	rules.OnApply = func(_ context.Context, key string) error {
		if strings.HasPrefix(key, "guard/") {
			return context.DeadlineExceeded
		}
		return nil
	}
	g.Ensure(t.Context(), []network.PortRef{at})
	if g.Meter(at) != 0 {
		t.Fatal("a meter that was not written is used")
	}
	rules.OnApply = nil
	g.Ensure(t.Context(), []network.PortRef{at})
	if g.Kbit(at) != 14400 {
		t.Fatalf("meter of %d kbit/s", g.Kbit(at))
	}
	rules.OnApply = func(context.Context, string) error { return context.DeadlineExceeded }
	promise(g, 5*mbit)
	g.Adjust(t.Context(), []network.PortRef{at})
	if g.Kbit(at) != 14400 {
		t.Errorf("the meter is taken for one of %d kbit/s", g.Kbit(at))
	}
	rules.OnApply = nil
	g.Adjust(t.Context(), []network.PortRef{at})
	if g.Kbit(at) != 9400 {
		t.Errorf("the meter is not tried again: %d kbit/s", g.Kbit(at))
	}
}

// A meter of before the start stays while somebody who uses it has not loaded what the store
// has; one that nobody uses goes, and one that two use goes with the second.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, rules := newGuard()
		g.Restore(t.Context(), []Stored{{Link: at, Kbit: 1000}})
		users := []*sync.Map{{}, {}}
		late := make(chan struct{})
		loaded := make(chan struct{})
		close(loaded)
		for i, u := range users {
			u.Store(at, true)
			g.AddUser(func() (links []network.PortRef) {
				u.Range(func(at, _ any) bool { links = append(links, at.(network.PortRef)); return true })
				return links
			}, []chan struct{}{loaded, late}[i])
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := g.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		defer running.Wait()
		defer cancel()
		here := func() bool {
			synctest.Wait()
			return len(rules.Program(key(at)).Meters) == 1
		}
		pause.For(time.Minute, "sweeps to be made")
		if !here() || g.Kbit(at) != 1000 {
			t.Errorf("while one has not loaded: %d kbit/s", g.Kbit(at))
		}
		close(late)
		promise(g, 5*mbit)
		pause.For(2*time.Second, "sweeps to be made")
		if !here() || g.Kbit(at) != 9400 {
			t.Errorf("beside 5 of 15 Mbit/s: %d kbit/s", g.Kbit(at))
		}
		users[0].Delete(at)
		pause.For(time.Minute, "sweeps to be made")
		if !here() {
			t.Error("it is gone, though one uses it")
		}
		users[1].Delete(at)
		pause.For(time.Minute, "sweeps to be made")
		if here() || g.Meter(at) != 0 {
			t.Error("it is there, though nobody uses it")
		}
	})
}
