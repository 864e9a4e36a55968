package tasks

import (
	"context"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Stop waits for all that was started while others go on starting, and nothing
// starts after it.
func TestStop(t *testing.T) {
	for range 200 {
		g := New()
		var running atomic.Int32
		work := func(ctx context.Context) {
			running.Add(1)
			<-ctx.Done()
			running.Add(-1)
		}
		g.Start(work)
		started := make(chan struct{})
		go func() {
			defer close(started)
			for g.Start(work) {
			}
		}()
		g.Stop()
		if n := running.Load(); n != 0 {
			t.Fatalf("%d goroutines run after Stop", n)
		}
		<-started
		if g.Start(work) {
			t.Fatal("a goroutine was started after Stop")
		}
	}
}

// Drain lets what was started come to its end, and nothing starts after it.
func TestDrain(t *testing.T) {
	g := New()
	let, ended := make(chan struct{}), make(chan error, 1)
	g.Start(func(ctx context.Context) {
		<-let
		ended <- ctx.Err()
	})
	drained := make(chan struct{})
	go func() {
		g.Drain()
		close(drained)
	}()
	select {
	case <-drained:
		t.Fatal("it does not wait")
	default:
	}
	close(let)
	<-drained
	if err := <-ended; err != nil {
		t.Errorf("its context has ended before: %v", err)
	}
	if g.Start(func(context.Context) {}) {
		t.Error("a goroutine was started after Drain")
	}
}
