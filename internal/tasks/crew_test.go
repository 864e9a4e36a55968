package tasks

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Each has as many calls at once as it may have, never more, and leaves none out.
func TestEach(t *testing.T) {
	const atOnce = 4
	var running, most, sum atomic.Int32
	full := make(chan struct{})
	fill := sync.OnceFunc(func() { close(full) })
	Each([]int32{1, 2, 3, 4, 5, 6, 7, 8, 9}, atOnce, func(i int32) {
		defer running.Add(-1)
		now := running.Add(1)
		if now >= atOnce {
			fill()
		}
		if now > atOnce {
			most.Store(now)
		}
		select {
		case <-full:
		case <-time.After(time.Minute):
			t.Error("others wait although there is a place")
		}
		sum.Add(i)
	})
	if most.Load() != 0 || sum.Load() != 45 {
		t.Errorf("%d at once, sum %d", most.Load(), sum.Load())
	}
}
