package kit

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// Loop repeats work. Make it with NewLoop. Its methods may be called concurrently.
type Loop struct{ woken chan struct{} }

// NewLoop returns a loop.
func NewLoop() Loop { return Loop{make(chan struct{}, 1)} }

// Wake makes Run do the work soon, once for several calls. It does not block.
func (l Loop) Wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// Run calls work after each Wake, and at the interval every unless that is zero. It waits for the
// time debounce after a Wake, so that changes which come together cause one call. It returns when
// ctx ends.
func (l Loop) Run(ctx context.Context, debounce, every time.Duration, work func(context.Context)) {
	var tick <-chan time.Time
	if every > 0 {
		t := time.NewTicker(every)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		case <-l.woken:
			if tasks.Sleep(ctx, debounce) != nil {
				return
			}
		}
		work(ctx)
	}
}
