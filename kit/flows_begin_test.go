package kit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// route is where a flow of the tests below goes: to a port of switch 1. Zero is nowhere.
type route struct {
	name string
	out  uint32
}

// routed begins flows that all go to one port, and records what they report.
type routed struct {
	*kit.Flows[route]
	ledger *servicetest.Ledger

	mu      sync.Mutex // guards the following fields
	out     uint32     // where flows go; zero if there is no path
	over    map[string]bool
	slow    bool
	refuses bool
	keeps   bool // rules cannot be removed
	failed  bool // what Failed returns

	done    map[string][]error // what was told to callers of Begin
	ended   map[string]int
	removed map[string]int
}

// inRouted runs a test of flows in a synctest bubble.
func inRouted(t *testing.T, test func(r *routed)) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{ledger: servicetest.NewLedger(), out: 1, over: map[string]bool{}, done: map[string][]error{}, ended: map[string]int{}, removed: map[string]int{}}
		r.ledger.SetOnApply(func(ctx context.Context, _ string) error {
			r.mu.Lock()
			slow, refuses := r.slow, r.refuses
			r.mu.Unlock()
			if slow {
				<-ctx.Done()
				return ctx.Err()
			}
			if refuses {
				return errors.New("the table is full")
			}
			return nil
		})
		r.ledger.OnRemove = func(string) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.keeps {
				return errors.New("the switch does not answer")
			}
			return nil
		}
		r.Flows = kit.NewFlows(kit.FlowOptions[route]{
			Name: "routes", Rules: r.ledger, Log: slog.New(slog.DiscardHandler), MaxFlows: 64, Timeout: time.Second,
			Place: func(_ context.Context, name string, v route) (route, network.Program, error) {
				r.mu.Lock()
				defer r.mu.Unlock()
				switch {
				case r.over[name]:
					return v, network.Program{}, kit.ErrFlowEnded
				case r.out == 0:
					return v, network.Program{}, network.ErrNoPath
				}
				v.out = r.out
				return v, network.Program{Rules: []network.Rule{{Switch: 1, Actions: []openflow.Action{openflow.Output(v.out)}}}}, nil
			},
			Due: func(v route) bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return v.out != r.out || r.over[v.name]
			},
			Failed: func(route, error) bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.failed
			},
			Ended: func(v route) func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.ended[v.name]++
				return func() {
					r.mu.Lock()
					defer r.mu.Unlock()
					if len(r.ledger.Program(v.name).Rules) > 0 {
						t.Errorf("%s has rules after they were removed", v.name)
					}
					r.removed[v.name]++
				}
			},
		})
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan error, 1)
		go func() { over <- r.Run(ctx) }()
		synctest.Wait()
		test(r)
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

// change changes what the flows meet.
func (r *routed) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// begin begins a flow at a port.
func (r *routed) begin(name string, port uint32) (v route, placed bool, err error) {
	v, placed, err = r.Begin(name, at(1, port), route{name: name}, func(v route, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if (v.out == 0) != (err != nil) {
			err = fmt.Errorf("value %v with error %w", v, err)
		}
		r.done[name] = append(r.done[name], err)
	})
	return v, placed, err
}

// pass advances the clock.
func (r *routed) pass(d time.Duration) {
	pause.For(d, "the flows count by their clock")
	synctest.Wait()
}

// TestFlowsBegin checks the life of a flow that a caller begins: it is placed once, moves when it is
// due, and ends.
func TestFlowsBegin(t *testing.T) {
	inRouted(t, func(r *routed) {
		for range 2 {
			if _, placed, err := r.begin("a", 1); placed || err != nil {
				t.Errorf("placed at once: %v, %v", placed, err)
			}
		}
		synctest.Wait()
		v, placed, err := r.begin("a", 1)
		if !placed || err != nil || v.out != 1 || fmt.Sprint(r.done["a"]) != "[<nil> <nil>]" {
			t.Errorf("placed %v at %v, %v; told %v", placed, v, err, r.done["a"])
		}
		r.change(func() { r.out = 2 })
		r.Wake()
		r.pass(time.Second)
		if v, placed := r.Value("a"); v.out != 2 || !placed || len(r.ledger.Program("a").Rules) != 1 {
			t.Errorf("after the network has changed: %v, placed %v", v, placed)
		}
		r.change(func() { r.over["a"] = true })
		r.Check("a")
		synctest.Wait()
		if r.Len() != 0 || len(r.ledger.Programs()) != 0 || r.ended["a"] != 1 || r.removed["a"] != 1 {
			t.Errorf("after its end: %d flows, ended %v, removed %v, rules %v", r.Len(), r.ended, r.removed, r.ledger.Programs())
		}
	})
}

// TestFlowsBeginSlow checks that callers do not wait for slow switches longer than Timeout, and that
// one port cannot use up the room of the others.
func TestFlowsBeginSlow(t *testing.T) {
	inRouted(t, func(r *routed) {
		for i := range 200 { // one after the other there is room for any number
			name := fmt.Sprint("before ", i)
			if _, _, err := r.begin(name, 1); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			r.change(func() { r.over[name] = true })
			r.Check(name)
			synctest.Wait()
		}
		r.change(func() { r.slow = true })
		var refused error
		for i := range 10 {
			if _, _, err := r.begin(fmt.Sprint(i), 1); err != nil {
				refused = err
			}
		}
		if !errors.Is(refused, kit.ErrFull) || r.Len() != 8 || !errors.Is(r.Room(at(1, 1)), kit.ErrFull) || r.Room(at(1, 2)) != nil {
			t.Errorf("%d flows of one port, refused with %v", r.Len(), refused)
		}
		r.pass(time.Second)
		for i := range 8 {
			if told := r.done[fmt.Sprint(i)]; len(told) != 1 || told[0] == nil {
				t.Errorf("callers for flow %d were told %v", i, told)
			}
		}
	})
}

// TestFlowsFailed checks that a flow that cannot be moved keeps its rules, unless Failed lets it end.
func TestFlowsFailed(t *testing.T) {
	for _, ends := range []bool{false, true} {
		inRouted(t, func(r *routed) {
			_, _, err := r.begin("a", 1)
			synctest.Wait()
			r.change(func() { r.refuses, r.failed, r.out = true, ends, 2 })
			r.Wake()
			r.pass(time.Second)
			if v, placed := r.Value("a"); placed == ends || err != nil || v.out != 1 && !ends || r.Len() == 1 == ends {
				t.Errorf("ends %v: value %v, placed %v, error %v", ends, v, placed, err)
			}
		})
	}
}

// TestFlowsBeginProperty checks, whatever callers, paths and switches do, that each caller is told
// once within Timeout, that there are rules for exactly the flows that are placed, and that each
// flow ends once.
func TestFlowsBeginProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		inRouted(t, func(r *routed) {
			waiting, begun := map[string]int{}, map[string]int{}
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				name := fmt.Sprint(rapid.IntRange(0, 5).Draw(rt, "flow"))
				switch rapid.SampledFrom([]string{"begin", "begin", "end", "move", "slow", "refuse", "keep", "time"}).Draw(rt, "step") {
				case "begin":
					r.change(func() { delete(r.over, name) })
					_, isThere := r.Value(name)
					before := r.Len()
					if _, placed, err := r.begin(name, 1); !placed && err == nil {
						waiting[name]++
					} else if placed && !isThere {
						rt.Errorf("flow %s is placed, and was not", name)
					}
					begun[name] += r.Len() - before
				case "end":
					r.change(func() { r.over[name] = true })
					r.Wake()
				case "move":
					port := uint32(rapid.IntRange(0, 3).Draw(rt, "port"))
					r.change(func() { r.out = port })
					r.Wake()
				case "slow":
					r.change(func() { r.slow = !r.slow })
				case "keep":
					r.change(func() { r.keeps = !r.keeps })
				case "refuse":
					r.change(func() { r.refuses = !r.refuses })
				case "time":
					r.pass(time.Duration(rapid.IntRange(0, 6000).Draw(rt, "ms")) * time.Millisecond)
				}
				synctest.Wait()
			}
			r.change(func() { r.slow, r.refuses, r.keeps, r.out = false, false, false, 1 })
			r.pass(20 * time.Second)
			placed := 0
			for name := range begun {
				if _, is := r.Value(name); is {
					placed++
				}
				if len(r.done[name]) != waiting[name] {
					rt.Errorf("flow %s: %d callers waited, told %v", name, waiting[name], r.done[name])
				}
			}
			if len(r.ledger.Programs()) != placed || r.Len() != placed {
				rt.Errorf("%d flows, %d placed, rules %v", r.Len(), placed, r.ledger.Keys())
			}
			for name := range begun {
				r.change(func() { r.over[name] = true })
			}
			r.Wake()
			r.pass(20 * time.Second)
			for name, n := range begun {
				if r.ended[name] != n || r.removed[name] != n {
					rt.Errorf("flow %s has begun %d times, ended %d times, and was removed %d times", name, n, r.ended[name], r.removed[name])
				}
			}
			if r.Len() != 0 || len(r.ledger.Programs()) != 0 {
				rt.Errorf("%d flows are left, rules %v", r.Len(), r.ledger.Keys())
			}
		})
	})
}
