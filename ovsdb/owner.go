package ovsdb

import (
	"context"
	"errors"
	"fmt"
)

// Want says what an owner wants of a bridge, by what its database holds now. As long as it
// fails, nothing of the owner's is changed there. It is called again whenever the database
// has changed, side by side for different bridges.
type Want func(dpid uint64, now Bridge) (Wanted, error)

// Owner declares what is to be in the databases under one name. Rows bear it in
// external_ids; what bears another name, or none, is never touched. Its methods may be
// called concurrently.
type Owner struct {
	m    *Manager
	name string
	want Want // the manager's lock guards it
}

// Nothing is what an owner wants that has been switched off.
func Nothing(uint64, Bridge) (Wanted, error) { return Wanted{}, nil }

// Declare says what the owner wants from now on.
func (o *Owner) Declare(want Want) {
	o.m.mu.Lock()
	o.want = want
	o.m.mu.Unlock()
	o.Touch()
}

var errUndeclared = errors.New("its owner has not said yet what it wants")

// wanted asks the owner.
func (o *Owner) wanted(d uint64, now Bridge) (Wanted, error) {
	o.m.mu.Lock()
	want := o.want
	o.m.mu.Unlock()
	if want == nil {
		return Wanted{}, errUndeclared
	}
	return want(d, now)
}

// Touch has the owner asked anew what it wants, everywhere.
func (o *Owner) Touch() {
	o.m.mu.Lock()
	defer o.m.mu.Unlock()
	for _, s := range o.m.switches {
		if k := s.keepers[o]; k != nil {
			k.touch()
		}
	}
}

// Ensure returns when a switch has what was wanted when it was called, and its daemon has
// carried it out. Of other ports than those that are named it does not matter if they
// cannot be given theirs. It waits for a database that is not connected.
func (o *Owner) Ensure(ctx context.Context, dpid uint64, ports []uint32) error {
	k, err := o.m.keeper(o, dpid)
	if err == nil {
		err = k.ensure(ctx, ports)
	}
	if err != nil {
		return fmt.Errorf("queues of switch %016x: %w", dpid, err)
	}
	return nil
}

// Bridge is a switch as its database holds it, and a channel that is closed when that may
// be different. Both are empty while the switch is not known, the bridge while its
// database is not connected.
func (o *Owner) Bridge(dpid uint64) (b Bridge, changed <-chan struct{}) {
	k, err := o.m.keeper(o, dpid)
	if err != nil {
		return Bridge{}, nil
	}
	return k.bridge()
}

// WaitBridge returns when a switch's database is connected and knows the switch.
func (o *Owner) WaitBridge(ctx context.Context, dpid uint64) (Bridge, error) {
	k, err := o.m.keeper(o, dpid)
	if err != nil {
		return Bridge{}, err
	}
	return k.client.WaitBridge(ctx, dpid)
}
