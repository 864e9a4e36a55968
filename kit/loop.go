package kit

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// Loop repeats work. Make it with NewLoop. Its methods may be called concurrently.
type Loop struct{ woken chan struct{} }

// NewLoop returns one that nobody has woken yet.
func NewLoop() Loop { return Loop{make(chan struct{}, 1)} }

// Wake has the work done soon, once for many calls. It does not block.
func (l Loop) Wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// Run works when it has been woken, debounce later, so that what changes at one time is
// looked at once; and every so often, unless that is zero. It returns when ctx ends.
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
