package handover

import (
	"context"
	"errors"
	"sync"

	"github.com/sluice-net/sluice/internal/tasks"
)

// A queue refuses work with one of these errors.
var (
	errBusy    = errors.New("too much is waiting to be done")
	errStopped = errors.New("the service is not running")
)

// queue runs jobs in the order of their arrival for each key, and concurrently for different keys.
// Its methods may be called concurrently.
type queue struct {
	tasks         *tasks.Group // the goroutines that run jobs
	perKey, total int          // bounds of waiting jobs

	mu      sync.Mutex
	jobs    map[string][]func(context.Context) // waiting, by keys for which a job runs now
	waiting int
}

// newQueue returns a queue in which at most perKey jobs wait for one key, and at most total for
// all.
func newQueue(t *tasks.Group, perKey, total int) *queue {
	return &queue{tasks: t, perKey: perKey, total: total, jobs: map[string][]func(context.Context){}}
}

// Add queues a job. It never waits.
func (q *queue) Add(key string, job func(context.Context)) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	jobs, busy := q.jobs[key]
	if len(jobs) >= q.perKey || q.waiting >= q.total {
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

// Do queues a job and waits until it has run.
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

// work runs the jobs of a key until none is left.
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

// Load returns how many jobs wait, and for how many keys a job runs.
func (q *queue) Load() (waiting, working int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting, len(q.jobs)
}
