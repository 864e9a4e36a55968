package domain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// outbox holds the names of devices about which messages have to be sent to a neighbour.
type outbox struct {
	wake chan struct{} // receives a value when a delivery has been scheduled

	mu      sync.Mutex
	pending map[string]attempt
}

// attempt holds the time at which the messages about a device are sent next, and the pause before it
// if an earlier attempt has failed.
type attempt struct {
	at    time.Time
	pause time.Duration
}

// newOutbox returns an empty outbox.
func newOutbox() *outbox {
	return &outbox{pending: map[string]attempt{}, wake: make(chan struct{}, 1)}
}

// schedule schedules a delivery at a time, or keeps an earlier one.
func (b *outbox) schedule(id string, at time.Time, pause time.Duration) {
	b.mu.Lock()
	x, known := b.pending[id]
	if !known || at.Before(x.at) {
		x.at = at
	}
	x.pause = max(x.pause, pause)
	b.pending[id] = x
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// takeDue removes and returns the attempts that are due.
func (b *outbox) takeDue(now time.Time) map[string]attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	due := map[string]attempt{}
	for id, x := range b.pending {
		if !x.at.After(now) {
			due[id] = x
			delete(b.pending, id)
		}
	}
	return due
}

// next returns the time until the next attempt is due.
func (b *outbox) next(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := time.Hour
	for _, x := range b.pending {
		wait = min(wait, x.at.Sub(now))
	}
	return wait
}

// deliverAll delivers the outbox until ctx ends. A failed delivery is tried again after growing
// pauses, for each device separately, so that a device about which the neighbour refuses messages
// delays no other.
func (n *neighbour) deliverAll(ctx context.Context) {
	timing := n.common.timing
	for {
		due := n.outbox.takeDue(n.common.now())
		tasks.Each(slices.Collect(maps.Keys(due)), 16, func(id string) {
			if n.deliver(ctx, id) != nil {
				pause := min(max(2*due[id].pause, timing.Retry), timing.RetryMax)
				n.outbox.schedule(id, n.common.now().Add(pause), pause)
			}
		})
		again := time.NewTimer(n.outbox.next(n.common.now()))
		select {
		case <-ctx.Done():
			again.Stop()
			return
		case <-again.C:
		case <-n.outbox.wake:
			again.Stop()
		}
	}
}

// lockSending takes the lock for sending messages about a device to the neighbour, and returns the
// function that releases it. Messages that are sent under the lock arrive in the order of their
// numbers.
func (n *neighbour) lockSending(ctx context.Context, id string) (end func(), err error) {
	return n.common.records.lock(ctx, n.Name+" "+id)
}

// deliver sends, in order, the messages in the outbox about one device.
func (n *neighbour) deliver(ctx context.Context, id string) error {
	end, err := n.lockSending(ctx, id)
	if err != nil {
		return err
	}
	defer end()
	return n.deliverLocked(ctx, id, false)
}

// deliverLocked is deliver for a caller that holds the lock of lockSending. If all is set it also
// sends messages that are held back.
func (n *neighbour) deliverLocked(ctx context.Context, id string, all bool) error {
	for {
		r := n.common.records.get(id)
		if r == nil {
			return nil
		}
		i := slices.IndexFunc(r.Outbox, func(o Unsent) bool { return o.Peer == n.Name })
		if i < 0 {
			return nil
		}
		o := r.Outbox[i]
		if !all && n.common.now().Before(o.NotBefore) {
			n.outbox.schedule(id, o.NotBefore, 0)
			return nil
		}
		err := n.request(ctx, o.Kind, o.message(r), nil, n.common.timing.Request)
		if code := codeOf(err); err != nil && (code == "" || code.retryable()) {
			return fmt.Errorf("not delivered yet: %w", err)
		}
		if err := n.common.delivered(ctx, n, id, o, err); err != nil {
			return err
		}
	}
}

// message returns the message to send.
func (o Unsent) message(r *Record) message {
	switch o.Kind {
	case KindReady:
		return &Ready{Subject: r.subject(), Move: o.Move}
	case KindComplete:
		return &Complete{Subject: r.subject(), Move: o.Move, Host: o.Host, Since: o.Since, Evidence: o.Evidence}
	default:
		return &Withdraw{Subject: r.subject(), Move: o.Move, Reason: o.Reason}
	}
}
