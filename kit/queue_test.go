package kit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/sluice-net/sluice/internal/tasks"
)

// TestQueue checks that a key is never worked on twice at once, that no lane exceeds its bound, and
// that every key is worked on after the last call of add.
func TestQueue(t *testing.T) {
	group := tasks.New()
	var all [300]struct{ runs, wanted, done atomic.Int64 }
	var now, most atomic.Int64
	q := newQueue(group, func(_ context.Context, key string) {
		var i int
		_, _ = fmt.Sscan(key, &i)
		if all[i].runs.Add(1) > 1 {
			t.Errorf("key %d is worked on twice at once", i)
		}
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		all[i].done.Store(all[i].wanted.Load())
		now.Add(-1)
		all[i].runs.Add(-1)
	})
	var adding sync.WaitGroup
	for range 8 {
		adding.Go(func() {
			for range 2000 {
				i := rand.IntN(len(all))
				all[i].wanted.Add(1)
				q.add(fmt.Sprint(i), lane(rand.IntN(int(lanes))))
			}
		})
	}
	adding.Wait()
	eventually(t, "everything to be worked on", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.keys) == 0
	})
	for i := range all {
		if w, d := all[i].wanted.Load(), all[i].done.Load(); w != d {
			t.Errorf("key %d: urgent for %d times, seen %d", i, w, d)
		}
	}
	if n := most.Load(); n > int64(workers[urgent]+workers[routine]) {
		t.Errorf("%d at once", n)
	}
	group.Stop()
	if q.add("0", urgent); len(q.waiting[urgent]) != 1 {
		t.Error("after its end something is begun")
	}
}

// TestQueueDoesNotWaitForRoutine checks that an urgent key is worked on although routine work has
// reached its bound, also if the key was added as routine before.
func TestQueueDoesNotWaitForRoutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, block, did := tasks.New(), make(chan struct{}), make(chan string, 1000)
		q := newQueue(group, func(_ context.Context, key string) {
			if key == "quick" {
				did <- key
				return
			}
			<-block
		})
		for i := range 2 * workers[routine] {
			q.add(fmt.Sprint("slow ", i), routine)
		}
		q.add("quick", routine)
		if synctest.Wait(); len(did) != 0 {
			t.Error("more routine work at once than may be")
		}
		q.add("quick", urgent)
		if synctest.Wait(); len(did) != 1 {
			t.Errorf("worked on %d times, want once", len(did))
		}
		close(block)
		group.Drain()
		if len(did) != 1 || len(q.keys) != 0 {
			t.Errorf("worked on %d times, %d keys left", len(did), len(q.keys))
		}
	})
}
