package service

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/internal/tasks"
)

// Jobs of one key are done one after the other, those of others beside them, and no more
// wait than may.
func TestQueue(t *testing.T) {
	group := tasks.New()
	q := NewQueue(group.Start, 2, 3)
	var mu sync.Mutex
	var done []string
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
	}{{"a", "first", nil}, {"a", "second", nil}, {"a", "third", ErrBusy}} {
		if err := q.Add(c.key, job(c.name)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if err := q.Do(t.Context(), "b", func(context.Context) error { job("beside")(t.Context()); return errFull }); !errors.Is(err, errFull) {
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
	if err := q.Do(t.Context(), "a", func(context.Context) error { return nil }); err != nil && !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	eventually(t, "an empty queue", func() bool { _, working := q.Load(); return working == 0 })
	if got := len(done); got != 3 || done[0] != "beside" || done[1] != "first" || done[2] != "second" {
		t.Errorf("done: %v", done)
	}
	group.Stop()
	if err := q.Add("a", job("late")); !errors.Is(err, ErrStopped) {
		t.Errorf("after the end: %v", err)
	}
}
