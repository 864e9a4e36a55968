package kit

import (
	"context"
	"testing"
	"time"
)

// TestLoop checks that work is done once for several calls of Wake, and at the interval.
func TestLoop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, worked, done := NewLoop(), make(chan struct{}), make(chan struct{})
	for range 3 {
		l.Wake()
	}
	go func() {
		defer close(done)
		l.Run(ctx, time.Millisecond, 0, func(context.Context) { worked <- struct{}{} })
	}()
	<-worked
	l.Wake()
	<-worked
	select {
	case <-worked:
		t.Error("work that nobody asked for")
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	<-done
	ctx, cancel = context.WithCancel(t.Context())
	NewLoop().Run(ctx, 0, time.Millisecond, func(context.Context) { cancel() })
}
