package mobile

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MoveTo moves the device to an interface. If hold is not 0, the device stays there for that long, or
// without end if hold is negative, whatever the policy says. A device that uses the interface already
// joins the network again.
func (d *Daemon) MoveTo(ctx context.Context, name, why string, hold time.Duration) (Move, error) {
	done := make(chan result, 1)
	posted := d.inbox.post(ctx, func() {
		i := d.find(name)
		switch {
		case i == nil:
			done <- result{err: fmt.Errorf("%w: %q", ErrUnknown, name)}
			return
		case !i.usable():
			done <- result{err: fmt.Errorf("%w: %s", ErrNoLink, name)}
			return
		}
		d.requested, d.requestedUntil = "", time.Time{}
		if hold != 0 {
			d.requested = name
		}
		if hold > 0 {
			d.requestedUntil = time.Now().Add(hold)
		}
		i.failures, i.backoff = 0, backoff{}
		if d.attempt != nil && d.attempt.target == i {
			d.attempt.waiting = append(d.attempt.waiting, done)
			return
		}
		if d.attempt != nil {
			d.abandon(ErrReplaced)
		}
		d.begin(i, why, done)
		d.schedule(time.Now(), time.Time{})
	})
	if !posted {
		return Move{}, context.Cause(ctx)
	}
	select {
	case r := <-done:
		return r.move, r.err
	case <-ctx.Done():
		return Move{}, context.Cause(ctx)
	case <-d.ctx.Done():
		return Move{}, errStopping
	}
}

var errStopping = errors.New("the daemon is stopping")

// Auto leaves the choice to the policy again.
func (d *Daemon) Auto(ctx context.Context) error {
	if !d.inbox.call(ctx, func() {
		d.requested, d.requestedUntil = "", time.Time{}
		d.decide()
	}) {
		return errStopping
	}
	return nil
}
