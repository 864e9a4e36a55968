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

// ownerRegistry are all who declare rules.
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

func (x *ownerRegistry) list() []*Owner {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Values(x.byHash))
}

// get finds the owner with a hash; nil if there is none.
func (x *ownerRegistry) get(hash uint16) *Owner {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byHash[hash]
}

// declareEvery declares for a switch that has connected what owners want on every
// switch. Reconciliation, which follows, sends what is missing.
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

// forgetEvery forgets what is declared for every switch of one that has gone: what
// anybody may claim to be must not fill the memory.
func (x *ownerRegistry) forgetEvery(d openflow.DatapathID) {
	for _, o := range x.list() {
		for _, key := range o.everyKeys() {
			x.installer.ledger.Forget(o.ledgerOwner, everyKey(key, d), d)
		}
	}
}

// flowRemoved acts on a rule that a switch has removed: what somebody else deleted is written
// again, and its owner is told of what ended by itself.
func (x *ownerRegistry) flowRemoved(s *Switch, r *openflow.FlowRemoved, now time.Time) {
	timedOut := r.Reason == openflow.RemovedIdle || r.Reason == openflow.RemovedHard
	at := rule.Slot{Table: r.Table, Priority: r.Priority, Match: r.Match}
	ledgerOwner, installed, outcome := x.installer.ledger.Removed(s.dpid, at, rule.Cookie(r.Cookie), timedOut)
	switch outcome {
	case ledger.RemovalForeign:
		s.logLimiter.Warn(x.installer.log, "a rule was deleted by somebody else and is written again", "switch", s.dpid, "owner", installed.Owner, "key", installed.Name, "match", installed.Match)
		if op, ok := x.installer.ledger.Rewrite(s.dpid, at); ok {
			if _, err := s.ch.sendBatch([]openflow.Message{op.Message}); err != nil {
				s.logLimiter.Warn(x.installer.log, "writing a rule again", "switch", s.dpid, "error", err)
			}
		}
	case ledger.RemovalFinal:
		o := x.get(ledgerOwner.Hash)
		if o == nil || o.opts.OnRemoved == nil || !installed.NotifyRemoved {
			return
		}
		installed.Packets, installed.Bytes, installed.CountersAt = r.Packets, r.Bytes, now
		o.opts.OnRemoved(Removed{Installed: installed, Reason: r.Reason, Duration: r.Duration.Duration()})
	}
}
