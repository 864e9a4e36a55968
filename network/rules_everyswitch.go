package network

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/openflow"
)

// EverySwitch makes what program gives for a switch what the owner wants there
// under key: at once on the switches that are connected, and on any other when it
// connects, before what it has is compared with what is wanted. So rules that a
// switch has from before a restart are left as they are. program gives rules,
// groups and meters of that switch only; calling again with the same key replaces
// it everywhere. A switch that refuses keeps what it had and holds up no other:
// refused has the errors, by switch.
func (o *Owner) EverySwitch(ctx context.Context, key string, program func(openflow.DatapathID) Program) (refused map[openflow.DatapathID]error) {
	o.mu.Lock()
	o.perSwitch[key] = program
	o.mu.Unlock()
	refused = map[openflow.DatapathID]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, d := range o.installer.switches.registered() {
		wg.Go(func() {
			err := o.applyEvery(ctx, key, d)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				refused[d] = err
			}
		})
	}
	wg.Wait()
	return refused
}

// everyKey is the key for one switch's part of what is declared for every switch.
func everyKey(key string, d openflow.DatapathID) string { return key + "/" + d.String() }

// applyEvery brings one switch's part of what is declared under key into the switch.
func (o *Owner) applyEvery(ctx context.Context, key string, d openflow.DatapathID) error {
	at := everyKey(key, d)
	release, err := o.lock(ctx, at)
	if err != nil {
		return err
	}
	defer release()
	return o.apply(ctx, at, o.everyProgram(key)(d), ApplyOptions{AllowDown: true})
}

func (o *Owner) everyProgram(key string) func(openflow.DatapathID) Program {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.perSwitch[key]
}

func (o *Owner) everyKeys() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.perSwitch))
}

// declareEvery declares one switch's part of what is declared under key.
func (o *Owner) declareEvery(ctx context.Context, key string, d openflow.DatapathID) error {
	at := everyKey(key, d)
	release, err := o.lock(ctx, at)
	if err != nil {
		return err
	}
	defer release()
	c, err := o.installer.ledger.Plan(o.ledgerOwner, at, o.everyProgram(key)(d))
	if err != nil {
		// It costs this owner its rules there, not all others the switch.
		o.installer.logLimiter.Warn(o.installer.log, "declaring what every switch has", "owner", o.name, "key", key, "switch", d, "error", err)
		return nil
	}
	c.Confirm()
	return nil
}
