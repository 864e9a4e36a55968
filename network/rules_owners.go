package network

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// ownerRegistry holds all owners.
type ownerRegistry struct {
	installer *installer

	mu     sync.Mutex
	byHash map[uint16]*Owner
}

// add registers an owner.
func (x *ownerRegistry) add(name string, opts OwnerOptions) (*Owner, error) {
	ledgerOwner, err := x.installer.ledger.AddOwner(name, opts.Adopt)
	if err != nil {
		return nil, err
	}
	o := &Owner{installer: x.installer, name: name, opts: opts, ledgerOwner: ledgerOwner, busy: map[string]chan struct{}{}, perSwitch: map[string]func(openflow.DatapathID) Program{}}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byHash == nil {
		x.byHash = map[uint16]*Owner{}
	}
	x.byHash[ledgerOwner.Hash] = o
	return o, nil
}

// list returns all owners.
func (x *ownerRegistry) list() []*Owner {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Values(x.byHash))
}

// get returns the owner with the hash, or nil.
func (x *ownerRegistry) get(hash uint16) *Owner {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byHash[hash]
}

// declareEvery declares, for a switch that has connected, the rules that owners want on every
// switch. The following reconciliation sends those that are missing.
func (x *ownerRegistry) declareEvery(ctx context.Context, d openflow.DatapathID) error {
	for _, o := range x.list() {
		for _, key := range o.everyKeys() {
			if err := o.declareEvery(ctx, key, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetEvery removes, for a switch that has disconnected, the rules that owners declare on every
// switch. Anybody can claim to be a switch, so these rules must not accumulate.
func (x *ownerRegistry) forgetEvery(d openflow.DatapathID) {
	for _, o := range x.list() {
		for _, key := range o.everyKeys() {
			x.installer.ledger.Forget(o.ledgerOwner, everyKey(key, d), d)
		}
	}
}

// flowRemoved handles a rule that a switch has removed. If the rule is still wanted, the switch is
// compared with the ledger at once, because whoever deleted the rule may have deleted more. The
// owner of a rule with timeouts is notified.
func (x *ownerRegistry) flowRemoved(s *Switch, r *openflow.FlowRemoved, now time.Time) {
	at := rule.Slot{Table: r.Table, Priority: r.Priority, Match: r.Match}
	ledgerOwner, installed, outcome := x.installer.ledger.Removed(s.dpid, at, rule.Cookie(r.Cookie))
	switch outcome {
	case ledger.RemovalWanted:
		s.comparer.wanted.set()
	case ledger.RemovalFinal:
		installed.Packets, installed.Bytes, installed.CountersAt = r.Packets, r.Bytes, now
		x.notifyRemoved(ledgerOwner, Removed{Installed: installed, Reason: r.Reason, Duration: r.Duration.Duration()})
	}
}

// notifyRemoved tells an owner of a rule that has left the ledger because the switch has removed
// it.
func (x *ownerRegistry) notifyRemoved(to *ledger.Owner, r Removed) {
	if o := x.get(to.Hash); o != nil && o.opts.OnRemoved != nil && r.NotifyRemoved {
		o.opts.OnRemoved(r)
	}
}
