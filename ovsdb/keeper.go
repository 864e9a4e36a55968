package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
)

// keeper keeps what one owner wants of one switch. What is wanted is asked for each time
// anew, so many changes at once are one transaction.
type keeper struct {
	owner  *Owner
	dpid   uint64
	client *Client
	log    *slog.Logger
	said   string // the last fault that was logged

	mu      sync.Mutex
	asked   uint64 // changes asked for
	done    uint64 // the last of them that is carried out, or has failed
	err     error
	dirty   chan struct{}
	changed chan struct{} // closed when done or err change
}

func newKeeper(o *Owner, dpid uint64, c *Client, log *slog.Logger) *keeper {
	return &keeper{owner: o, dpid: dpid, client: c, log: log, dirty: make(chan struct{}, 1), changed: make(chan struct{})}
}

// errEnded says that a switch's database is not looked after any more.
var errEnded = errors.New("its database has been given up")

// run works until ctx ends.
func (k *keeper) run(ctx context.Context) {
	defer k.finish(math.MaxUint64, errEnded)
	for {
		_, changed := k.client.State()
		k.mu.Lock()
		asked := k.asked
		k.mu.Unlock()
		err := k.apply(ctx)
		k.finish(asked, err)
		k.tell(ctx, err)
		select {
		case <-ctx.Done():
			return
		case <-k.dirty:
		case <-changed:
		}
	}
}

func (k *keeper) apply(ctx context.Context) error {
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

// tell logs once what an operator has to see to: that something of somebody else's is in
// the way.
func (k *keeper) tell(ctx context.Context, err error) {
	text := ""
	if errors.Is(err, ErrForeign) {
		text = err.Error()
	}
	if text != "" && text != k.said && ctx.Err() == nil {
		k.log.Warn("a switch's database has something else than is wanted", "switch", fmt.Sprintf("%016x", k.dpid), "owner", k.owner.name, "error", err)
	}
	k.said = text
}

// bridge is the switch as its database holds it, empty while that is not known, and a
// channel that is closed when it may be different.
func (k *keeper) bridge() (b Bridge, changed <-chan struct{}) {
	state, changed := k.client.State()
	if state != nil {
		b, _ = state.Bridge(k.dpid)
	}
	return b, changed
}

func (k *keeper) finish(asked uint64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done, k.err = asked, err
	close(k.changed)
	k.changed = make(chan struct{})
}

// touch has the switch looked at again.
func (k *keeper) touch() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	select {
	case k.dirty <- struct{}{}:
	default:
	}
	return k.asked
}

// ensure returns when what was wanted when it was called is there, at least at the ports
// that are named.
func (k *keeper) ensure(ctx context.Context, ports []uint32) error {
	turn := k.touch()
	for {
		k.mu.Lock()
		done, err, changed := k.done, concerning(k.err, ports), k.changed
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

// concerning is the part of an error that is not about other ports only.
func concerning(err error, ports []uint32) error {
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
