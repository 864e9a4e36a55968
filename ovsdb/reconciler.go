package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
)

// reconciler keeps one owner's desired state of one switch. It computes the desired state anew
// each time, so many changes at the same time become one transaction.
type reconciler struct {
	owner      *Owner
	dpid       uint64
	client     *Client
	log        *slog.Logger
	lastLogged string // the last error that was logged

	mu        sync.Mutex
	requested uint64 // number of requested changes
	done      uint64 // the last of them that has been applied or has failed
	err       error
	dirty     chan struct{}
	changed   chan struct{} // closed when done or err changes
}

func newReconciler(o *Owner, dpid uint64, c *Client, log *slog.Logger) *reconciler {
	return &reconciler{owner: o, dpid: dpid, client: c, log: log, dirty: make(chan struct{}, 1), changed: make(chan struct{})}
}

// errClosed means that a switch's database is no longer managed.
var errClosed = errors.New("its database has been given up")

// run works until ctx ends.
func (k *reconciler) run(ctx context.Context) {
	defer k.finish(math.MaxUint64, errClosed)
	for {
		_, changed := k.client.State()
		k.mu.Lock()
		asked := k.requested
		k.mu.Unlock()
		err := k.apply(ctx)
		k.finish(asked, err)
		k.logForeign(ctx, err)
		select {
		case <-ctx.Done():
			return
		case <-k.dirty:
		case <-changed:
		}
	}
}

func (k *reconciler) apply(ctx context.Context) error {
	if err := k.client.Err(); err != nil {
		return err
	}
	now, _ := k.bridge()
	want, err := k.owner.wanted(k.dpid, now)
	if err != nil {
		return err
	}
	_, err = k.client.Apply(ctx, k.owner.name, k.dpid, want)
	return err
}

// logForeign logs once if a row of somebody else prevents a change, because only an operator can
// resolve that.
func (k *reconciler) logForeign(ctx context.Context, err error) {
	text := ""
	if errors.Is(err, ErrForeign) {
		text = err.Error()
	}
	if text != "" && text != k.lastLogged && ctx.Err() == nil {
		k.log.Warn("a switch's database has something else than is wanted", "switch", fmt.Sprintf("%016x", k.dpid), "owner", k.owner.name, "error", err)
	}
	k.lastLogged = text
}

// bridge returns the switch as its database describes it, empty while that is unknown, and a
// channel that is closed when it may have changed.
func (k *reconciler) bridge() (b Bridge, changed <-chan struct{}) {
	state, changed := k.client.State()
	if state != nil {
		b, _ = state.Bridge(k.dpid)
	}
	return b, changed
}

func (k *reconciler) finish(asked uint64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done, k.err = asked, err
	close(k.changed)
	k.changed = make(chan struct{})
}

// touch requests another run, and returns its number.
func (k *reconciler) touch() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requested++
	select {
	case k.dirty <- struct{}{}:
	default:
	}
	return k.requested
}

// ensure waits until the state desired at the time of the call has been applied, at least at the
// given ports.
func (k *reconciler) ensure(ctx context.Context, ports []uint32) error {
	turn := k.touch()
	for {
		k.mu.Lock()
		done, err, changed := k.done, errorsOf(k.err, ports), k.changed
		k.mu.Unlock()
		switch {
		case done >= turn && err == nil:
			return nil
		case done >= turn && !errors.Is(err, ErrDown):
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-changed:
		}
	}
}

// errorsOf returns err without the errors about ports other than the given ones.
func errorsOf(err error, ports []uint32) error {
	var single PortErrors
	if !errors.As(err, &single) {
		return err
	}
	var errs []error
	for _, p := range ports {
		errs = append(errs, single[p])
	}
	return errors.Join(errs...)
}
