package plugin

import (
	"context"
	"errors"
	"sync"

	"github.com/sluice-net/sluice/internal/tasks"
)

// What a queue refuses work for.
var (
	errBusy    = errors.New("too much is waiting to be done")
	errStopped = errors.New("the service is not running")
)

// queue does work for keys: for each key one job after the other, for different keys at
// once. Its methods may be called concurrently.
type queue struct {
	tasks        *tasks.Group // what works on keys
	perKey, most int          // jobs that may wait

	mu      sync.Mutex
	jobs    map[string][]func(context.Context) // of keys for which something is done now
	waiting int
}

// newQueue returns one that lets so many jobs wait for each key, and for all.
func newQueue(t *tasks.Group, perKey, most int) *queue {
	return &queue{tasks: t, perKey: perKey, most: most, jobs: map[string][]func(context.Context){}}
}

// Add has a job done. It never waits.
func (q *queue) Add(key string, job func(context.Context)) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	jobs, busy := q.jobs[key]
	if len(jobs) >= q.perKey || q.waiting >= q.most {
		return errBusy
	}
	q.jobs[key] = append(jobs, job)
	q.waiting++
	if busy {
		return nil
	}
	if !q.tasks.Start(func(ctx context.Context) { q.work(ctx, key) }) {
		delete(q.jobs, key)
		q.waiting--
		return errStopped
	}
	return nil
}

// Do has a job done and waits for its end.
func (q *queue) Do(ctx context.Context, key string, job func(context.Context) error) error {
	done := make(chan error, 1)
	err := q.Add(key, func(run context.Context) {
		both, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(run, cancel)()
		if both.Err() != nil {
			done <- both.Err()
			return
		}
		done <- job(both)
	})
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work does the jobs of a key until there are none.
func (q *queue) work(ctx context.Context, key string) {
	for {
		q.mu.Lock()
		jobs := q.jobs[key]
		if len(jobs) == 0 {
			delete(q.jobs, key)
			q.mu.Unlock()
			return
		}
		q.jobs[key] = jobs[1:]
		q.waiting--
		q.mu.Unlock()
		jobs[0](ctx)
	}
}

// Load is how many jobs wait, and for how many keys something is done.
func (q *queue) Load() (waiting, working int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting, len(q.jobs)
}
