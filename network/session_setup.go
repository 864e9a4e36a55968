package network

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/openflow"
)

// setUp brings a new session into the network: role, configuration, ports, capabilities,
// reconciliation. The reader runs at the same time and delivers the replies. Then setUp monitors
// the session until it ends.
func (s *Switch) setUp(session context.Context) {
	ctx, cancel := context.WithTimeout(session, s.n.cfg.HandshakeTimeout)
	defer cancel()
	rec, err := s.prepare(ctx)
	if err != nil {
		if !s.ch.ended() {
			s.ch.close(fmt.Errorf("set-up failed: %w", err))
		}
		if errors.Is(err, errTooManyPorts) {
			s.n.publisher.emit(Event{Kind: SwitchRefused, Switch: s.dpid, Reason: err.Error()})
		}
		return
	}
	if !s.n.switches.markUp(s) {
		return
	}
	s.n.admission.knownAddrs.add(hostOf(s.RemoteAddr()), s.upAt)
	s.n.admission.logSession(s.dpid, "switch is up", "from", s.conn.RemoteAddr(), "software", s.desc.Software, "tables", s.layout,
		"took", time.Since(s.since).Round(time.Microsecond), "rules_kept", rec.Kept, "rules_written", rec.Written,
		"rules_removed", rec.Removed, "rules_left", rec.Left)
	s.n.dispatcher.switchUp(s)
	close(s.announced)
	s.monitor(session)
}

// prepare sets the switch up and reconciles its rules.
func (s *Switch) prepare(ctx context.Context) (ledger.Reconciliation, error) {
	var rec ledger.Reconciliation
	if desc, reply, err := s.ch.multipart(ctx, &openflow.DescRequest{}); err == nil {
		if d, ok := desc[0].(*openflow.Desc); ok {
			s.desc = *d
		}
		reply.release()
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
	if err := s.ports.read(ctx, s.ch); err != nil {
		return rec, err
	}
	s.readCapabilities(ctx)
	return s.reconcile(ctx)
}

// SetRole requests a role for the controller. A role request carries a generation, so that switches
// refuse the request of an outdated master. SetRole takes the generation from the clock.
func (s *Switch) SetRole(ctx context.Context, r openflow.Role) error {
	got, err := s.ch.call(ctx, &openflow.RoleRequest{Role: r, Generation: uint64(time.Now().UnixNano())})
	if err != nil {
		return err
	}
	reply, ok := got.(*openflow.RoleReply)
	if !ok {
		return fmt.Errorf("switch %v: %v in reply to a role request", s.dpid, got.MsgType())
	}
	s.role.Store(uint32(reply.Role))
	return nil
}

// readCapabilities requests the table features and tries a bundle. A switch that does not report
// table features is assumed to support everything, in one table, until it refuses a rule.
func (s *Switch) readCapabilities(ctx context.Context) {
	o, ok := s.n.cfg.Overrides[s.dpid]
	if !ok {
		o = s.n.cfg.Overrides[0]
	}
	reported := reportedTables{}
	tables, done, _ := ask[openflow.TableFeaturesReply](ctx, s.ch, &openflow.TableFeaturesRequest{})
	defer done()
	for t := range tables {
		reported[t.Table] = *t
	}
	s.layout = reported.layout()
	if o.Layout.Known() {
		s.layout = o.Layout
	}
	c := Capabilities{Tables: int(s.features.Tables)}
	c.set, c.match = reported.fields(s.layout)
	c.Bundles = probeBundles(ctx, s.ch) == nil
	c.restrict(o)
	s.caps = c
}
