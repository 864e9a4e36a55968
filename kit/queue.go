package kit

import (
	"context"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/internal/tasks"
)

// lane is one of a queue's two lists of keys.
type lane int

const (
	urgent  lane = iota // keys that a caller waits for
	routine             // the others
	lanes
)

// workers is the default number of keys of each lane that are worked on at one time. The lanes have
// separate bounds, so that routine work never delays urgent work.
var workers = [lanes]int{urgent: 64, routine: 16}

// queue calls a function for keys: for several keys at once, but never twice at once for the same
// key. Adding a key that already waits has no effect. A key that is added while it is being worked
// on is worked on again. Its methods may be called concurrently.
type queue struct {
	tasks   *tasks.Group // owns the goroutines; nothing is started after its end
	work    func(ctx context.Context, key string)
	workers [lanes]int // set before a key is added

	mu      sync.Mutex
	keys    map[string]*queuedKey // those that wait or are worked on
	waiting [lanes][]string       // in the order of their arrival
	running [lanes]int
}

type queuedKey struct {
	queued, running bool
	lane            lane // in which it waits
}

func newQueue(owner *tasks.Group, work func(ctx context.Context, key string)) *queue {
	return &queue{tasks: owner, work: work, workers: workers, keys: map[string]*queuedKey{}}
}

// add adds a key. It does not block.
func (q *queue) add(key string, l lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.keys[key]
	if k == nil {
		k = &queuedKey{}
		q.keys[key] = k
	}
	if k.queued && k.lane <= l {
		return
	}
	if k.queued && !k.running {
		from := q.waiting[k.lane]
		q.waiting[k.lane] = slices.Delete(from, slices.Index(from, key), slices.Index(from, key)+1)
	}
	k.queued, k.lane = true, l
	if !k.running { // otherwise run adds it to the lane
		q.waiting[l] = append(q.waiting[l], key)
	}
	q.begin()
}

// begin starts workers for waiting keys within the bounds of the lanes. The lock is held.
func (q *queue) begin() {
	for l := range lanes {
		for q.running[l] < q.workers[l] && len(q.waiting[l]) > 0 {
			key := q.waiting[l][0]
			if !q.tasks.Start(func(ctx context.Context) { q.run(ctx, key, l) }) {
				return
			}
			q.waiting[l] = q.waiting[l][1:]
			q.keys[key].queued, q.keys[key].running = false, true
			q.running[l]++
		}
	}
}

func (q *queue) run(ctx context.Context, key string, l lane) {
	q.work(ctx, key)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running[l]--
	k := q.keys[key]
	if k.running = false; k.queued {
		q.waiting[k.lane] = append(q.waiting[k.lane], key)
	} else {
		delete(q.keys, key)
	}
	q.begin()
}
