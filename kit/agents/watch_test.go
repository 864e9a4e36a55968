package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/kit/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	message string
	event   = control.Event[message, message]
)

// stub is an agent that works except for its event stream.
type stub struct {
	*control.Client[message, message]
	asked  atomic.Int32
	events []event // of each stream, which then breaks
}

func (c *stub) Watch(_ context.Context, _ time.Duration, f func(event)) error {
	c.asked.Add(1)
	for _, e := range c.events {
		f(e)
	}
	return errors.New("broken")
}

func (c *stub) Status(context.Context) (control.Status, error) {
	return control.Status{Instance: "first"}, nil
}
func (c *stub) Knock(context.Context) error { return nil }
func (c *stub) Close()                      {}

func newTestRegistry(t *testing.T, change func(*Options[*stub, message, message])) *Registry[*stub, message, message] {
	o := Options[*stub, message, message]{Service: "test", Log: slog.New(slog.DiscardHandler)}
	change(&o)
	r := New(o)
	t.Cleanup(r.Close)
	return r
}

// TestBrokenEvents checks that a stream that breaks at once is not opened again in a tight loop.
func TestBrokenEvents(t *testing.T) {
	r := newTestRegistry(t, func(*Options[*stub, message, message]) {})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	c := &stub{}
	r.watch(ctx, &Agent[*stub]{Name: "z", Client: c, mu: &r.mu})
	if n := c.asked.Load(); n > 20 {
		t.Errorf("asked %d times in half a second", n)
	}
}

// TestUpAfterFirstEvent checks that an agent is not up before its first event has been handled, so
// that a caller that finds it up also sees what has ended.
func TestUpAfterFirstEvent(t *testing.T) {
	var a *Agent[*stub]
	before := map[message]Liveness{}
	r := newTestRegistry(t, func(o *Options[*stub, message, message]) {
		o.Event = func(_ *Agent[*stub], e event, _ bool) { before[e.Ended[0]] = a.State().Liveness }
	})
	a = &Agent[*stub]{Name: "z", Client: &stub{}, mu: &r.mu, state: State{Liveness: Unknown}}
	r.handleEvent(a, event{Instance: "first", Seq: 1, Ended: []message{"one"}})
	r.handleEvent(a, event{Instance: "first", Seq: 2, Ended: []message{"two"}})
	if before["one"] != Unknown || before["two"] != Up || a.State().Liveness != Up {
		t.Errorf("while it was taken in: %v; now %s", before, a.State().Liveness)
	}
}

// TestDrainMessagesOutOfOrder checks that the latest request decides whether an agent drains, in
// whichever order its messages arrive, and that a restarted agent counts from the beginning.
func TestDrainMessagesOutOfOrder(t *testing.T) {
	r := newTestRegistry(t, func(o *Options[*stub, message, message]) {
		o.Event = func(*Agent[*stub], event, bool) {}
		o.Lost = func(_, _ *Agent[*stub], _ error) {}
	})
	a := &Agent[*stub]{Name: "z", Client: &stub{}, mu: &r.mu, state: State{Liveness: Up}}
	event := func(instance string, requests uint64, draining bool) func() {
		return func() {
			r.handleEvent(a, event{Instance: instance, DrainRequests: requests, Status: control.Load{Draining: draining, Sessions: 7}})
		}
	}
	status := func(instance string, requests uint64, draining bool) func() {
		return func() {
			r.updateStatus(a, control.Status{Instance: instance, DrainRequests: requests, Load: control.Load{Draining: draining}})
		}
	}
	for i, step := range []struct {
		hear func()
		want bool
	}{
		{status("first", 2, false), false},
		{event("first", 1, true), false},
		{event("first", 2, false), false},
		{event("first", 3, true), true},
		{status("first", 2, false), true},
		{event("first", 2, false), true},
		{status("first", 4, false), false},
		{event("first", 5, true), true},
		{status("second", 0, false), false},
		{event("second", 0, false), false},
	} {
		if step.hear(); a.State().Status.Draining != step.want {
			t.Errorf("step %d: draining %v", i, !step.want)
		}
	}
	if n := a.State().Status.Sessions; n != 7 {
		t.Errorf("%d sessions", n)
	}
}

// TestRecordsAreTakenOnce checks that each record of an instance is handled once although streams
// repeat it, and that lost records and the loss of an instance are reported.
func TestRecordsAreTakenOnce(t *testing.T) {
	var got []message
	var lost []error
	missed := make(chan struct{}, 1)
	r := newTestRegistry(t, func(o *Options[*stub, message, message]) {
		o.Event = func(_ *Agent[*stub], e event, _ bool) { got = append(got, e.Ended...) }
		o.Missed = func(context.Context, *Agent[*stub]) { missed <- struct{}{} }
		o.Lost = func(_, _ *Agent[*stub], cause error) { lost = append(lost, cause) }
	})
	a := &Agent[*stub]{Name: "z", Client: &stub{}, mu: &r.mu, state: State{Liveness: Up}}
	for _, e := range []event{
		{Instance: "first", Seq: 2, Ended: []message{"one", "two"}},
		{Instance: "first", Seq: 2, Ended: []message{"one", "two"}},
		{Instance: "first", Seq: 3, Ended: []message{"one", "two", "three"}},
		{Instance: "first", Seq: 3},
	} {
		r.handleEvent(a, e)
	}
	if want := "[one two three]"; len(missed) > 0 || len(lost) > 0 || fmt.Sprint(got) != want {
		t.Errorf("%v, missed %d, lost %v, want %s", got, len(missed), lost, want)
	}
	r.handleEvent(a, event{Instance: "first", Seq: 9, Ended: []message{"nine"}})
	select {
	case <-missed:
	case <-time.After(time.Minute):
		t.Error("that records are missing is not reported")
	}
	r.handleEvent(a, event{Instance: "second", Seq: 1, Ended: []message{"new"}})
	if want := "[one two three nine new]"; fmt.Sprint(got) != want || len(lost) != 1 || !errors.Is(lost[0], ErrReplaced) {
		t.Errorf("%v, lost %v, want %s", got, lost, want)
	}
}
