package plugin

import (
	"context"
	"errors"
	"sync"
)

// Bounds of the work that waits: of one device, and of all together.
const (
	maxLane    = 16
	maxWaiting = 8192
)

var (
	errBusy    = errors.New("too much is waiting to be done")
	errStopped = errors.New("the service is not running")
)

// lanes do work for devices: for each device one thing after the other, for
// different devices at once.
type lanes struct {
	// start runs a function in a goroutine of its own, or says that it does not.
	start func(func(context.Context)) bool

	mu      sync.Mutex
	queues  map[string][]func(context.Context)
	waiting int
}

func newLanes(start func(func(context.Context)) bool) *lanes {
	return &lanes{start: start, queues: map[string][]func(context.Context){}}
}

// add puts a job into the lane of a device. It never waits.
func (l *lanes) add(device string, job func(context.Context)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue, busy := l.queues[device]
	if len(queue) >= maxLane || l.waiting >= maxWaiting {
		return errBusy
	}
	l.queues[device] = append(queue, job)
	l.waiting++
	if busy {
		return nil
	}
	if !l.start(func(ctx context.Context) { l.work(ctx, device) }) {
		delete(l.queues, device)
		l.waiting--
		return errStopped
	}
	return nil
}

// do has a job done in the lane of a device and waits for its end.
func (l *lanes) do(ctx context.Context, device string, job func(context.Context) error) error {
	done := make(chan error, 1)
	err := l.add(device, func(run context.Context) {
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

// work does what is in a lane until it is empty.
func (l *lanes) work(ctx context.Context, device string) {
	for {
		l.mu.Lock()
		queue := l.queues[device]
		if len(queue) == 0 {
			delete(l.queues, device)
			l.mu.Unlock()
			return
		}
		job := queue[0]
		l.queues[device] = queue[1:]
		l.waiting--
		l.mu.Unlock()
		job(ctx)
	}
}

// length is how many jobs wait.
func (l *lanes) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}
