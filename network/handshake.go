package network

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// setUp brings a new session into the network: role, configuration, ports,
// capabilities, reconciliation. The reader runs meanwhile and delivers replies.
// Then it watches over the session.
func (s *Switch) setUp(session context.Context) {
	ctx, cancel := context.WithTimeout(session, s.n.cfg.HandshakeTimeout)
	defer cancel()
	rec, err := s.prepare(ctx)
	if err != nil {
		if !s.ch.ended() {
			s.ch.close(fmt.Errorf("set-up failed: %w", err))
		}
		if errors.Is(err, errOutsized) {
			s.n.events.emit(Event{Kind: SwitchRefused, Switch: s.dpid, Reason: err.Error()})
		}
		return
	}
	if !s.n.switches.goUp(s) {
		return
	}
	s.n.admission.homes.note(hostOf(s.RemoteAddr()), s.upAt)
	s.n.admission.tell(s.dpid, "switch is up", "from", s.conn.RemoteAddr(), "software", s.desc.Software, "tables", s.layout,
		"took", time.Since(s.since).Round(time.Microsecond), "rules_kept", rec.Kept, "rules_written", rec.Written,
		"rules_removed", rec.Removed, "rules_left", rec.Left)
	s.n.news.switchUp(s)
	close(s.announced)
	s.monitor(session)
}

func (s *Switch) prepare(ctx context.Context) (ledger.Reconciliation, error) {
	var rec ledger.Reconciliation
	if desc, err := s.ch.multipart(ctx, &openflow.DescRequest{}); err == nil && len(desc) > 0 {
		if d, ok := desc[0].(*openflow.Desc); ok {
			s.desc = *d
		}
	}
	if s.n.cfg.Role != openflow.RoleNoChange {
		if err := s.SetRole(ctx, s.n.cfg.Role); err != nil {
			return rec, err
		}
	}
	config := &openflow.SetConfig{Config: openflow.Config{Flags: openflow.FragNormal, MissLen: openflow.MaxLenNoBuffer}}
	if err := s.ch.send(config, s.ch.xid.Add(1)); err != nil {
		return rec, err
	}
	if err := s.readPorts(ctx); err != nil {
		return rec, err
	}
	s.readCapabilities(ctx)
	return s.reconcile(ctx)
}

// SetRole asks for a role. Roles carry a generation so that an old master's
// request cannot win; the clock provides it.
func (s *Switch) SetRole(ctx context.Context, r openflow.Role) error {
	got, err := s.ch.call(ctx, &openflow.RoleRequest{Role: r, Generation: uint64(time.Now().UnixNano())})
	if err != nil {
		return err
	}
	reply, ok := got[0].(*openflow.RoleReply)
	if !ok {
		return fmt.Errorf("switch %v: %v in reply to a role request", s.dpid, got[0].MsgType())
	}
	s.role.Store(uint32(reply.Role))
	return nil
}

func (s *Switch) readPorts(ctx context.Context) error {
	parts, err := s.ch.multipart(ctx, &openflow.PortDescRequest{})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range parts {
		for _, port := range *p.(*openflow.PortDescReply) {
			if len(s.ports) >= s.n.cfg.MaxPorts {
				return fmt.Errorf("%w: it has more than %d ports; if that is true, raise openflow.max_ports", errOutsized, s.n.cfg.MaxPorts)
			}
			s.ports[port.Number] = port
		}
	}
	return nil
}

// errOutsized says that a switch claims to be larger than the configuration lets it be.
var errOutsized = errors.New("the switch is not let in")

// readCapabilities asks for table features and tries a bundle. A switch that
// does not answer the first is taken to do everything, in one table, until it refuses a
// rule.
func (s *Switch) readCapabilities(ctx context.Context) {
	o, ok := s.n.cfg.Overrides[s.dpid]
	if !ok {
		o = s.n.cfg.Overrides[0]
	}
	told := toldTables{}
	if parts, err := s.ch.multipart(ctx, &openflow.TableFeaturesRequest{}); err == nil {
		for _, p := range parts {
			for _, t := range *p.(*openflow.TableFeaturesReply) {
				told[t.Table] = t
			}
		}
	}
	s.layout = told.layout()
	if o.Layout.Known() {
		s.layout = o.Layout
	}
	c := Capabilities{Tables: int(s.features.Tables)}
	c.set, c.match = told.fields(s.layout)
	c.Bundles = s.tryBundle(ctx) == nil
	c.restrict(o)
	s.caps = c
}

func (s *Switch) tryBundle(ctx context.Context) error {
	const flags = openflow.BundleAtomic | openflow.BundleOrdered
	id := s.ch.xid.Add(1)
	for _, op := range []openflow.BundleOp{openflow.BundleOpenRequest, openflow.BundleDiscardRequest} {
		if _, err := s.ch.call(ctx, &openflow.BundleControl{Bundle: id, Op: op, Flags: flags}); err != nil {
			return err
		}
	}
	return nil
}

// reconcile reads what is ours on the switch and sends the difference to what
// is wanted. From here on changes may be sent to the switch: whatever happens in
// between is at worst written twice.
func (s *Switch) reconcile(ctx context.Context) (ledger.Reconciliation, error) {
	defer s.n.ledger.Reading(s.dpid, s.layout)()
	if err := s.n.owners.declareEvery(ctx, s.dpid); err != nil {
		return ledger.Reconciliation{}, err
	}
	s.n.switches.accept(s)
	found, err := s.readRules(ctx)
	if err != nil {
		return ledger.Reconciliation{}, err
	}
	found.Rules = s.n.forwarding.adopt(s, found.Rules)
	rec := s.n.ledger.Reconcile(s.dpid, found)
	rec.Kept += s.flows.Len()
	var refused []ledger.Op
	for ops := rec.Ops; len(ops) > 0; ops = s.n.ledger.Overtaken(s.dpid, ops) {
		not, err := s.bring(ctx, ops)
		if err != nil {
			return rec, err
		}
		refused = append(refused, not...)
	}
	s.n.ledger.Reconciled(s.dpid, refused)
	return rec, nil
}

// bring sends operations in parts and returns those that the switch refuses.
func (s *Switch) bring(ctx context.Context, ops []ledger.Op) (refused []ledger.Op, err error) {
	for part := range chunks(ops, reconcileChunk) {
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
			s.limiter.Warn(s.n.cfg.Log, "switch refused a rule at reconciliation", "switch", s.dpid, "message", part[e.index].Message, "error", e.err)
			refused = append(refused, part[e.index])
		}
	}
	return refused, nil
}

// reconcileChunk bounds the messages between two barriers.
const reconcileChunk = 1000

func chunks[T any](all []T, size int) func(func([]T) bool) {
	return func(yield func([]T) bool) {
		for len(all) > 0 {
			n := min(size, len(all))
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

func (s *Switch) readRules(ctx context.Context) (ledger.Found, error) {
	var f ledger.Found
	ours := openflow.AllFlows()
	ours.Cookie, ours.CookieMask = uint64(rule.Magic)<<56, rule.MagicMask
	parts, err := s.ch.multipart(ctx, &openflow.FlowStatsRequest{FlowFilter: ours})
	if err != nil {
		return f, err
	}
	for _, p := range parts {
		for _, r := range *p.(*openflow.FlowStatsReply) {
			if rule.Cookie(r.Cookie).Ours() {
				f.Rules = append(f.Rules, reported(&r))
			}
		}
	}
	// Groups and meters are optional parts of the protocol.
	if parts, err = s.ch.multipart(ctx, &openflow.GroupDescRequest{}); err != nil && !errors.Is(err, ErrRefused) {
		return f, err
	}
	for _, p := range parts {
		for _, g := range *p.(*openflow.GroupDescReply) {
			f.Groups = append(f.Groups, rule.Group{Switch: s.dpid, ID: g.Group, Type: g.Type, Buckets: g.Buckets})
		}
	}
	if parts, err = s.ch.multipart(ctx, &openflow.MeterConfigRequest{Meter: openflow.MeterAll}); err != nil && !errors.Is(err, ErrRefused) {
		return f, err
	}
	for _, p := range parts {
		for _, m := range *p.(*openflow.MeterConfigReply) {
			f.Meters = append(f.Meters, rule.Meter{Switch: s.dpid, ID: m.Meter, Flags: m.Flags, Bands: m.Bands})
		}
	}
	return f, nil
}

func reported(r *openflow.FlowStats) ledger.Reported {
	return ledger.Reported{
		Slot:   rule.Slot{Table: r.Table, Priority: r.Priority, Match: r.Match},
		Cookie: rule.Cookie(r.Cookie), Idle: r.IdleTimeout, Hard: r.HardTimeout, Flags: r.Flags,
		Instructions: r.Instructions, Packets: r.Packets, Bytes: r.Bytes,
	}
}
