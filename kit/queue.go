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
	asked   lane = iota // keys that somebody waits for
	routine             // the others
	lanes
)

// atOnce bounds the keys of each lane that are worked on at one time, unless the queue has bounds of
// its own. Routine work so never takes the places of work that somebody waits for.
var atOnce = [lanes]int{asked: 64, routine: 16}

// queue calls a function for keys, for several keys at once, but never twice at once for the same
// key. A key that is added while it waits is worked on once; one that is added while it is worked
// on is worked on again. Its methods may be called concurrently.
type queue struct {
	tasks  *tasks.Group // owns the goroutines; after its end nothing is begun
	work   func(ctx context.Context, key string)
	atOnce [lanes]int // set before a key is added

	mu      sync.Mutex
	keys    map[string]*queuedKey // those that wait or are worked on
	waiting [lanes][]string       // in the order in which they came
	running [lanes]int
}

type queuedKey struct {
	waits, runs bool
	lane        lane // in which it waits
}

func newQueue(owner *tasks.Group, work func(ctx context.Context, key string)) *queue {
	return &queue{tasks: owner, work: work, atOnce: atOnce, keys: map[string]*queuedKey{}}
}

// add has a key worked on soon. It does not block.
func (q *queue) add(key string, l lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.keys[key]
	if k == nil {
		k = &queuedKey{}
		q.keys[key] = k
	}
	if k.waits && k.lane <= l {
		return
	}
	if k.waits && !k.runs {
		from := q.waiting[k.lane]
		q.waiting[k.lane] = slices.Delete(from, slices.Index(from, key), slices.Index(from, key)+1)
	}
	k.waits, k.lane = true, l
	if !k.runs { // otherwise it joins the lane when it has been worked on
		q.waiting[l] = append(q.waiting[l], key)
	}
	q.begin()
}

// begin has keys worked on as long as there are places. The lock is held.
func (q *queue) begin() {
	for l := range lanes {
		for q.running[l] < q.atOnce[l] && len(q.waiting[l]) > 0 {
			key := q.waiting[l][0]
			if !q.tasks.Start(func(ctx context.Context) { q.run(ctx, key, l) }) {
				return
			}
			q.waiting[l] = q.waiting[l][1:]
			q.keys[key].waits, q.keys[key].runs = false, true
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
	if k.runs = false; k.waits {
		q.waiting[k.lane] = append(q.waiting[k.lane], key)
	} else {
		delete(q.keys, key)
	}
	q.begin()
}
