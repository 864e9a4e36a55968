package handover

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/internal/tasks"
)

// Jobs of one key run in order, those of other keys concurrently, and the bounds of waiting jobs
// hold.
func TestQueue(t *testing.T) {
	group := tasks.New()
	q := newQueue(group, 2, 3)
	var mu sync.Mutex
	var done []string
	broken := errors.New("broken")
	hold, begun := make(chan struct{}), make(chan struct{})
	job := func(name string) func(context.Context) {
		return func(context.Context) {
			mu.Lock()
			defer mu.Unlock()
			done = append(done, name)
		}
	}
	if err := q.Add("a", func(context.Context) { close(begun); <-hold }); err != nil {
		t.Fatal(err)
	}
	<-begun
	for _, c := range []struct {
		key, name string
		want      error
	}{{"a", "first", nil}, {"a", "second", nil}, {"a", "third", errBusy}} {
		if err := q.Add(c.key, job(c.name)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if err := q.Do(t.Context(), "b", func(context.Context) error { job("beside")(t.Context()); return broken }); !errors.Is(err, broken) {
		t.Errorf("the job's error: %v", err)
	}
	if waiting, working := q.Load(); waiting != 2 || working < 1 {
		t.Errorf("%d wait, %d are done", waiting, working)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.Do(gone, "c", func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone: %v", err)
	}
	close(hold)
	if err := q.Do(t.Context(), "a", func(context.Context) error { return nil }); err != nil && !errors.Is(err, errBusy) {
		t.Error(err)
	}
	group.Stop()
	if waiting, working := q.Load(); waiting+working != 0 {
		t.Errorf("%d wait, %d are done when all is done", waiting, working)
	}
	if got := len(done); got != 3 || done[0] != "beside" || done[1] != "first" || done[2] != "second" {
		t.Errorf("done: %v", done)
	}
	if err := q.Add("a", job("late")); !errors.Is(err, errStopped) {
		t.Errorf("after the end: %v", err)
	}
}
