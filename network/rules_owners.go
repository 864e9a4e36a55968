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

// owners are all who declare rules.
type owners struct {
	in *installer

	mu     sync.Mutex
	byHash map[uint16]*Owner
}

// add registers an owner.
func (x *owners) add(name string, opts OwnerOptions) (*Owner, error) {
	led, err := x.in.ledger.AddOwner(name, opts.Adopt)
	if err != nil {
		return nil, err
	}
	o := &Owner{in: x.in, name: name, opts: opts, led: led, busy: map[string]chan struct{}{}, every: map[string]func(openflow.DatapathID) Program{}}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byHash == nil {
		x.byHash = map[uint16]*Owner{}
	}
	x.byHash[led.Hash] = o
	return o, nil
}

func (x *owners) list() []*Owner {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Values(x.byHash))
}

// get finds the owner with a hash; nil if there is none.
func (x *owners) get(hash uint16) *Owner {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byHash[hash]
}

// declareEvery declares for a switch that has connected what owners want on every
// switch. Reconciliation, which follows, sends what is missing.
func (x *owners) declareEvery(ctx context.Context, d openflow.DatapathID) error {
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
func (x *owners) forgetEvery(d openflow.DatapathID) {
	for _, o := range x.list() {
		for _, key := range o.everyKeys() {
			x.in.ledger.Forget(o.led, everyKey(key, d), d)
		}
	}
}

// removed acts on a rule that a switch has removed: what somebody else deleted is written
// again, and its owner is told of what ended by itself.
func (x *owners) removed(s *Switch, r *openflow.FlowRemoved, now time.Time) {
	timedOut := r.Reason == openflow.RemovedIdle || r.Reason == openflow.RemovedHard
	at := rule.Slot{Table: r.Table, Priority: r.Priority, Match: r.Match}
	led, in, outcome := x.in.ledger.Removed(s.dpid, at, rule.Cookie(r.Cookie), timedOut)
	switch outcome {
	case ledger.RemovalForeign:
		s.limiter.Warn(x.in.log, "a rule was deleted by somebody else and is written again", "switch", s.dpid, "owner", in.Owner, "key", in.Name, "match", in.Match)
		if op, ok := x.in.ledger.Rewrite(s.dpid, at); ok {
			if _, err := s.ch.sendBatch([]openflow.Message{op.Message}); err != nil {
				s.limiter.Warn(x.in.log, "writing a rule again", "switch", s.dpid, "error", err)
			}
		}
	case ledger.RemovalFinal:
		o := x.get(led.Hash)
		if o == nil || o.opts.OnRemoved == nil || !in.NotifyRemoved {
			return
		}
		in.Packets, in.Bytes, in.CountersAt = r.Packets, r.Bytes, now
		o.opts.OnRemoved(Removed{Installed: in, Reason: r.Reason, Duration: r.Duration.Duration()})
	}
}
