package network

import (
	"context"
	"time"
)

// signal wakes a waiting goroutine. Several calls of set before it wakes count as one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// switchTimeout is how long a change of several switches waits for a slow one.
const switchTimeout = 2 * time.Second

// deadline is the common deadline of changes of several switches.
type deadline <-chan time.Time

func newDeadline() deadline { return time.After(switchTimeout) }

// await waits until done is closed or the deadline has passed, and reports whether done is closed.
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

// expired is a deadline that has passed.
var expired = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// tickUntilIdle waits for wake, and then calls f once in each interval until f reports that nothing
// is left to do. Then it waits for wake again. It returns when ctx ends.
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
