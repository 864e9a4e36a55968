package redisnames

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// maxWaiting limits the requests that wait for one master, maxBatch those that are sent
	// together, and maxRunning the batches that are in flight.
	maxWaiting, maxBatch, maxRunning = 8192, 512, 4
	// silentPause is how long a master that has not answered gets no requests.
	silentPause = 500 * time.Millisecond
	// maxQueues limits the masters that are remembered; a Redis Cluster has fewer.
	maxQueues = 1024
)

// request is a request to a master.
type request interface {
	// fail ends the request with an error.
	fail(error)
}

// masterQueues queues requests by master, and sends those that accumulate while a batch is in
// flight as one batch. Masters do not delay each other. A master that has not answered gets no
// requests for silentPause, and then one batch at a time until it answers.
type masterQueues[T request] struct {
	tasks *tasks.Group
	// run sends a batch and ends its requests. An error means that the master does not answer.
	run func(context.Context, []T) error

	mu       sync.Mutex
	byMaster map[string]*masterQueue[T] // by the master's address
	closed   bool
}

type masterQueue[T request] struct {
	waiting []T
	running int
	silent  bool
	retryAt time.Time // when it may get requests again, if it is silent
}

func newMasterQueues[T request](run func(context.Context, []T) error) *masterQueues[T] {
	return &masterQueues[T]{tasks: tasks.New(), run: run, byMaster: map[string]*masterQueue[T]{}}
}

// add queues a request for a master. If add returns an error, the request is not sent and not
// ended; the error wraps record.ErrBusy or record.ErrClosed.
func (l *masterQueues[T]) add(master string, x T) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return record.ErrClosed
	}
	n := l.byMaster[master]
	if n == nil {
		if len(l.byMaster) >= maxQueues {
			maps.DeleteFunc(l.byMaster, func(_ string, n *masterQueue[T]) bool { return n.running == 0 })
		}
		n = &masterQueue[T]{}
		l.byMaster[master] = n
	}
	switch {
	case n.silent && (n.running > 0 || time.Now().Before(n.retryAt)):
		return fmt.Errorf("redis at %s does not answer: %w", master, record.ErrBusy)
	case len(n.waiting) >= maxWaiting:
		return fmt.Errorf("redis at %s: %d wait for it: %w", master, len(n.waiting), record.ErrBusy)
	}
	if n.running < maxRunning {
		if !l.tasks.Start(func(ctx context.Context) { l.work(ctx, n) }) {
			return record.ErrClosed
		}
		n.running++
	}
	n.waiting = append(n.waiting, x)
	return nil
}

// work sends the waiting requests of a master until there are none.
func (l *masterQueues[T]) work(ctx context.Context, n *masterQueue[T]) {
	for {
		batch := l.nextBatch(n)
		if len(batch) == 0 {
			return
		}
		err := l.run(ctx, batch)
		for _, x := range l.recordResult(n, err) {
			x.fail(err)
		}
	}
}

// nextBatch removes a batch from the queue; if it is empty the calling worker ends.
func (l *masterQueues[T]) nextBatch(n *masterQueue[T]) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := min(len(n.waiting), maxBatch)
	if count == 0 {
		n.running--
		return nil
	}
	batch := n.waiting[:count:count]
	if n.waiting = n.waiting[count:]; len(n.waiting) == 0 {
		n.waiting = nil
	}
	return batch
}

// recordResult records whether a master has answered. If not, it returns the waiting requests.
func (l *masterQueues[T]) recordResult(n *masterQueue[T], err error) (all []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.silent = err != nil; n.silent {
		all, n.waiting, n.retryAt = n.waiting, nil, time.Now().Add(silentPause)
	}
	return all
}

// stop closes the queues. Waiting requests are still sent to masters that answer.
func (l *masterQueues[T]) stop() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.tasks.Drain()
}
