package ovsdb

import (
	"context"
	"errors"
	"fmt"
)

// Want returns the desired state of an owner's bridge, given what its database holds now. If it
// returns an error, nothing of the owner is changed there. It is called whenever the database
// has changed, and concurrently for different bridges.
type Want func(dpid uint64, now Bridge) (Wanted, error)

// Owner declares what the databases are to contain under one name. Rows have that name in
// external_ids; rows with another name, or without one, are never changed. Owner is safe for
// concurrent use.
type Owner struct {
	m    *Manager
	name string
	want Want // guarded by the manager's lock
}

// Nothing is the Want that declares no configuration, for an owner that is switched off.
func Nothing(uint64, Bridge) (Wanted, error) { return Wanted{}, nil }

// Declare sets the owner's desired state.
func (o *Owner) Declare(want Want) {
	o.m.mu.Lock()
	o.want = want
	o.m.mu.Unlock()
	o.Touch()
}

var errUndeclared = errors.New("its owner has not said yet what it wants")

// wanted calls the owner's function.
func (o *Owner) wanted(d uint64, now Bridge) (Wanted, error) {
	o.m.mu.Lock()
	want := o.want
	o.m.mu.Unlock()
	if want == nil {
		return Wanted{}, errUndeclared
	}
	return want(d, now)
}

// Touch causes the owner's function to be called again for all bridges.
func (o *Owner) Touch() {
	o.m.mu.Lock()
	defer o.m.mu.Unlock()
	for _, s := range o.m.switches {
		if k := s.reconcilers[o]; k != nil {
			k.touch()
		}
	}
}

// Ensure waits until a switch has the state that was desired at the time of the call, and its
// daemon has applied it. Errors at ports other than the given ones are ignored. Ensure also
// waits for a database that is not connected.
func (o *Owner) Ensure(ctx context.Context, dpid uint64, ports []uint32) error {
	k, err := o.m.reconcilerOf(o, dpid)
	if err == nil {
		err = k.ensure(ctx, ports)
	}
	if err != nil {
		return fmt.Errorf("queues of switch %016x: %w", dpid, err)
	}
	return nil
}

// Bridge returns a switch as its database describes it, and a channel that is closed when the
// description may have changed. Both are empty while the switch is unknown. The bridge is also
// empty while the database is not connected.
func (o *Owner) Bridge(dpid uint64) (b Bridge, changed <-chan struct{}) {
	k, err := o.m.reconcilerOf(o, dpid)
	if err != nil {
		return Bridge{}, nil
	}
	return k.bridge()
}

// WaitBridge waits until a switch's database is connected and has the switch.
func (o *Owner) WaitBridge(ctx context.Context, dpid uint64) (Bridge, error) {
	k, err := o.m.reconcilerOf(o, dpid)
	if err != nil {
		return Bridge{}, err
	}
	return k.client.WaitBridge(ctx, dpid)
}
