package network

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// reconcile reads Sluice's rules from the switch and sends the difference to what is declared. Once
// it has begun, changes may be sent to the switch: a change made during the reconciliation is at
// worst written twice.
func (s *Switch) reconcile(ctx context.Context) (ledger.Reconciliation, error) {
	defer s.n.ledger.Reading(s.dpid, s.layout)()
	if err := s.n.owners.declareEvery(ctx, s.dpid); err != nil {
		return ledger.Reconciliation{}, err
	}
	s.n.switches.markAccepting(s)
	found, done, err := readFound(ctx, s)
	defer done()
	if err != nil {
		return ledger.Reconciliation{}, err
	}
	found.Rules = s.n.forwarding.adopt(s, found.Rules)
	rec := s.n.ledger.Reconcile(s.dpid, found)
	rec.Kept += s.flows.Len()
	var refused []ledger.Op
	for ops := rec.Ops; len(ops) > 0; ops = s.n.ledger.Overtaken(s.dpid, ops) {
		rejected, err := s.n.owners.installer.send(ctx, s, ops)
		if err != nil {
			return rec, err
		}
		refused = append(refused, rejected...)
	}
	s.n.ledger.Reconciled(s.dpid, refused)
	return rec, nil
}

// send sends operations to a switch in parts, and returns those that the switch refuses.
func (in *installer) send(ctx context.Context, s *Switch, ops []ledger.Op) (refused []ledger.Op, err error) {
	for part := range slices.Chunk(ops, reconcileChunk) {
		msgs := make([]openflow.Message, len(part))
		for i, op := range part {
			msgs[i] = op.Message
		}
		bt, err := s.ch.sendBatch(msgs)
		if err != nil {
			return nil, err
		}
		errs, err := s.ch.wait(ctx, bt)
		if err != nil {
			return nil, err
		}
		for _, e := range errs {
			s.logLimiter.Warn(in.log, "switch refused a rule that it lacks", "switch", s.dpid, "message", part[e.index].Message, "error", e.err)
			refused = append(refused, part[e.index])
		}
	}
	return refused, nil
}

// reconcileChunk is the number of messages between two barriers.
const reconcileChunk = 1000

// readFound reads the rules with a cookie of Sluice, and all groups and meters, from a switch. The
// caller calls done, also after an error, when it no longer uses the result.
func readFound(ctx context.Context, s *Switch) (f ledger.Found, done func(), err error) {
	flows, doneFlows, err := askFlows(ctx, s.ch, ourFlows())
	if err != nil {
		return f, doneFlows, err
	}
	for r := range flows {
		if rule.Cookie(r.Cookie).Ours() {
			f.Rules = append(f.Rules, toReported(r))
		}
	}
	// Groups and meters are optional parts of the protocol.
	groups, doneGroups, err := ask[openflow.GroupDescReply](ctx, s.ch, &openflow.GroupDescRequest{})
	done = func() { doneFlows(); doneGroups() }
	if err != nil && !errors.Is(err, ErrRefused) {
		return f, done, err
	}
	f.NoGroups = err != nil
	for g := range groups {
		f.Groups = append(f.Groups, rule.Group{Switch: s.dpid, ID: g.Group, Type: g.Type, Buckets: g.Buckets})
	}
	meters, doneMeters, err := ask[openflow.MeterConfigReply](ctx, s.ch, &openflow.MeterConfigRequest{Meter: openflow.MeterAll})
	done = func() { doneFlows(); doneGroups(); doneMeters() }
	if err != nil && !errors.Is(err, ErrRefused) {
		return f, done, err
	}
	f.NoMeters = err != nil
	for m := range meters {
		f.Meters = append(f.Meters, rule.Meter{Switch: s.dpid, ID: m.Meter, Flags: m.Flags, Bands: m.Bands})
	}
	return f, done, nil
}

// toReported converts a rule to the ledger's form.
func toReported(r *openflow.FlowStats) ledger.Reported {
	return ledger.Reported{
		Slot:   rule.Slot{Table: r.Table, Priority: r.Priority, Match: r.Match},
		Cookie: rule.Cookie(r.Cookie), Idle: r.IdleTimeout, Hard: r.HardTimeout, Flags: r.Flags,
		Instructions: r.Instructions, Packets: r.Packets, Bytes: r.Bytes,
	}
}
