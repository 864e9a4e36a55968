package network

import (
	"context"
	"time"
)

// signal wakes who waits for it: once, however often it is set before.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// switchTimeout is how long the others wait for a switch.
const switchTimeout = 2 * time.Second

// deadline is how long changes of several switches are waited for, all together.
type deadline <-chan time.Time

func newDeadline() deadline { return time.After(switchTimeout) }

// await waits until a change is done, as long as there is patience, and says whether it is.
func (p *deadline) await(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-*p:
		*p = expired
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// expired is patience that is over.
var expired = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// tickUntilIdle is a clock for what there is seldom: woken, it calls f each interval for as
// long as f says that something is left. It ends with ctx.
func tickUntilIdle(ctx context.Context, wake <-chan struct{}, interval time.Duration, f func(now time.Time) (left bool)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		tick := time.NewTicker(interval)
		for left := true; left && ctx.Err() == nil; {
			select {
			case <-ctx.Done():
			case now := <-tick.C:
				left = f(now)
			}
		}
		tick.Stop()
	}
}
