package service

import (
	"context"
	"errors"
	"sync"
)

// What a Queue refuses work for.
var (
	ErrBusy    = errors.New("too much is waiting to be done")
	ErrStopped = errors.New("the service is not running")
)

// Queue does work for keys: for each key one job after the other, for different keys at
// once. Its methods may be called concurrently.
type Queue struct {
	// start runs a function in a goroutine of its own, or says that it does not.
	start        func(func(context.Context)) bool
	perKey, most int

	mu      sync.Mutex
	jobs    map[string][]func(context.Context) // of keys for which something is done now
	waiting int
}

// NewQueue returns one that lets so many jobs wait for each key, and for all. start runs
// what works on a key in a goroutine of its own, or says that it does not.
func NewQueue(start func(func(context.Context)) bool, perKey, most int) *Queue {
	return &Queue{start: start, perKey: perKey, most: most, jobs: map[string][]func(context.Context){}}
}

// Add has a job done. It never waits.
func (q *Queue) Add(key string, job func(context.Context)) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	jobs, busy := q.jobs[key]
	if len(jobs) >= q.perKey || q.waiting >= q.most {
		return ErrBusy
	}
	q.jobs[key] = append(jobs, job)
	q.waiting++
	if busy {
		return nil
	}
	if !q.start(func(ctx context.Context) { q.work(ctx, key) }) {
		delete(q.jobs, key)
		q.waiting--
		return ErrStopped
	}
	return nil
}

// Do has a job done and waits for its end.
func (q *Queue) Do(ctx context.Context, key string, job func(context.Context) error) error {
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
func (q *Queue) work(ctx context.Context, key string) {
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
func (q *Queue) Load() (waiting, working int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting, len(q.jobs)
}
