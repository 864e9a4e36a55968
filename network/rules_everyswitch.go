package network

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/openflow"
)

// EverySwitch declares under key, for every switch, what program returns for the switch. It applies
// the declaration to the connected switches at once. For a switch that connects later, the
// declaration is made before the switch's rules are reconciled, so that rules from before a restart
// are kept. program returns rules, groups and meters of the given switch only. A later call with the
// same key replaces the declaration everywhere. A switch that refuses keeps its previous rules and
// does not delay the others; EverySwitch returns the errors by switch.
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

// everyKey returns the key of one switch's part of a declaration for every switch.
func everyKey(key string, d openflow.DatapathID) string { return key + "/" + d.String() }

// applyEvery installs one switch's part of the declaration under key.
func (o *Owner) applyEvery(ctx context.Context, key string, d openflow.DatapathID) error {
	at := everyKey(key, d)
	release, err := o.lock(ctx, at)
	if err != nil {
		return err
	}
	defer release()
	return o.apply(ctx, at, o.everyProgram(key)(d), ApplyOptions{AllowDown: true})
}

// everyProgram returns the function declared under key.
func (o *Owner) everyProgram(key string) func(openflow.DatapathID) Program {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.perSwitch[key]
}

// everyKeys returns the keys of declarations for every switch.
func (o *Owner) everyKeys() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.perSwitch))
}

// declareEvery records one switch's part of the declaration under key in the ledger.
func (o *Owner) declareEvery(ctx context.Context, key string, d openflow.DatapathID) error {
	at := everyKey(key, d)
	release, err := o.lock(ctx, at)
	if err != nil {
		return err
	}
	defer release()
	c, err := o.installer.ledger.Plan(o.ledgerOwner, at, o.everyProgram(key)(d))
	if err != nil {
		// The owner then lacks these rules on the switch, but the switch can connect nevertheless.
		o.installer.logLimiter.Warn(o.installer.log, "declaring rules for a new switch", "owner", o.name, "key", key, "switch", d, "error", err)
		return nil
	}
	c.Confirm()
	return nil
}
