package cinema

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/lab/testbed"
)

// events collects events of the controller.
type events struct {
	w    *world
	over sync.WaitGroup

	mu  sync.Mutex
	all []client.Event
}

// follow collects the events of some kinds until the controller or the test ends.
func (w *world) follow(kinds ...string) *events {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	e := &events{w: w}
	e.over.Go(func() {
		_ = w.Events(ctx, client.EventsRequest{Resume: true, Kinds: kinds}, e.note) // ends with the test or the controller
	})
	w.t.Cleanup(func() { cancel(); e.over.Wait() })
	return e
}

func (e *events) note(x client.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, x)
	return nil
}

// of returns the events of a kind since a moment whose attributes contain a text.
func (e *events) of(kind, text string, since time.Time) (out []client.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.all {
		if x.Kind == kind && !x.At.Before(since) && strings.Contains(string(x.Attrs), text) {
			out = append(out, x)
		}
	}
	return out
}

// first waits for the first event of a kind since a moment.
func (e *events) first(kind, text string, since time.Time) (x client.Event) {
	e.w.t.Helper()
	e.w.must(testbed.Poll(e.w.t.Context(), "an event "+kind, func() error {
		all := e.of(kind, text, since)
		if len(all) == 0 {
			return fmt.Errorf("there is none with %q", text)
		}
		x = all[0]
		return nil
	}))
	return x
}
