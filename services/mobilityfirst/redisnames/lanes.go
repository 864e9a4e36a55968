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
	// maxWaiting bounds what waits for one master, maxTogether what is asked of it together, and maxRunning how often that is
	// done at one time.
	maxWaiting, maxTogether, maxRunning = 8192, 512, 4
	// silentFor is for how long nothing is asked of a master that has not answered.
	silentFor = 500 * time.Millisecond
	// maxLanes is how many masters are remembered: more than a Redis Cluster can have.
	maxLanes = 1024
)

// asked is something that is asked of a master.
type asked interface {
	// fail ends it.
	fail(error)
}

// lanes has what is asked of one master asked together, as long as something else is on its way there. Masters do not wait for
// each other. One that has not answered is left alone for silentFor, and then asked one thing at a time, until it does.
type lanes[T asked] struct {
	tasks *tasks.Group
	// run asks, and ends all of it. An error says that the master does not answer.
	run func(context.Context, []T) error

	mu     sync.Mutex
	of     map[string]*lane[T] // by the master's address
	closed bool
}

type lane[T asked] struct {
	waiting []T
	running int
	silent  bool
	again   time.Time // when it may be asked, if it is silent
}

func newLanes[T asked](run func(context.Context, []T) error) *lanes[T] {
	return &lanes[T]{tasks: tasks.New(), run: run, of: map[string]*lane[T]{}}
}

// add has something asked of a master. An error means that it is not, and does not end: it wraps record.ErrBusy or
// record.ErrClosed.
func (l *lanes[T]) add(master string, x T) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return record.ErrClosed
	}
	n := l.of[master]
	if n == nil {
		if len(l.of) >= maxLanes {
			maps.DeleteFunc(l.of, func(_ string, n *lane[T]) bool { return n.running == 0 })
		}
		n = &lane[T]{}
		l.of[master] = n
	}
	switch {
	case n.silent && (n.running > 0 || time.Now().Before(n.again)):
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

// work asks what waits for a master until nothing does.
func (l *lanes[T]) work(ctx context.Context, n *lane[T]) {
	for {
		together := l.take(n)
		if len(together) == 0 {
			return
		}
		err := l.run(ctx, together)
		for _, x := range l.heard(n, err) {
			x.fail(err)
		}
	}
}

// take takes what is asked together; nothing means that who takes has ended.
func (l *lanes[T]) take(n *lane[T]) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := min(len(n.waiting), maxTogether)
	if count == 0 {
		n.running--
		return nil
	}
	together := n.waiting[:count:count]
	if n.waiting = n.waiting[count:]; len(n.waiting) == 0 {
		n.waiting = nil
	}
	return together
}

// heard notes whether a master has answered. If not, what waits for it is given back.
func (l *lanes[T]) heard(n *lane[T], err error) (all []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.silent = err != nil; n.silent {
		all, n.waiting, n.again = n.waiting, nil, time.Now().Add(silentFor)
	}
	return all
}

// stop ends all: what waits is asked yet, of masters that answer.
func (l *lanes[T]) stop() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.tasks.Drain()
}
