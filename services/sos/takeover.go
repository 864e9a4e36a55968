package sos

import (
	"context"
	"math"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

const (
	// settleEvery is the interval at which the network is checked while it settles.
	settleEvery = 50 * time.Millisecond
	// declareTimeout bounds the time to declare the rules of one session again.
	declareTimeout = 5 * time.Second
)

// takeover is the result of a start, for the status.
type takeover struct {
	Sessions int `json:"sessions" doc:"Live sessions found at the agents when the controller started"`
	Dropped  int `json:"dropped" doc:"Sessions that only one agent knew, or that could not be rebuilt"`
}

// recovery is a start of the service, with the sessions that it finds at agents.
type recovery struct {
	*Service
	found map[agentapi.SessionID]*foundSession
}

// takeOver finds the sessions that agents have carried since before the start, declares
// their rules again, and then lets the ledger remove the rules that nobody has declared.
func (s *Service) takeOver(ctx context.Context) {
	x := &recovery{s, map[agentapi.SessionID]*foundSession{}}
	x.askAgents(ctx)
	x.awaitEnds(ctx)
	x.addEnding()
	var all []*session
	var left []agentapi.SessionID
	for id, f := range x.found {
		if ss := x.rebuild(id, f); ss != nil {
			all = append(all, ss)
		} else if len(f.agents) > 0 {
			left = append(left, id)
		}
	}
	// After the others, because a connection may have been given to other agents since.
	for _, id := range left {
		s.start(x.abandon(id, x.found[id]).clear)
	}
	if len(all) > 0 {
		x.awaitNetwork(ctx, all)
	}
	for _, ss := range all {
		x.redeclare(ctx, ss)
		x.activate(ss)
	}
	s.selection.punts.apply(ctx, s.selection.punts.latest(), network.ApplyOptions{AllowDown: true})
	s.strayRules.apply(ctx, s.wantedStrayRules(), network.ApplyOptions{AllowDown: true})
	s.rules.Ready()
	if len(x.found) > 0 {
		s.log.Info("sessions taken over", "sessions", len(all), "dropped", len(left))
	}
}

// rebuild restores a session from what both of its agents report. It returns nil for a
// session that was still being prepared, because the controller that held its first packet
// is gone, and for a session that only one agent knows.
func (x *recovery) rebuild(id agentapi.SessionID, f *foundSession) *session {
	client, server := f.reports[agentapi.RoleClient], f.reports[agentapi.RoleServer]
	if !f.mayCarry(agentapi.RoleClient) || !f.mayCarry(agentapi.RoleServer) {
		return nil
	}
	about, ok := readContext(client.Context)
	ss := newSession(id, about)
	if !ok || ss.flow != (flow{client.Client, client.Server}) || ss.Layout.complete(client.Reply, server.Reply) != nil {
		return nil
	}
	ss.enter(StateSetup)
	ss.epoch = math.MaxUint64 // an epoch that never occurs, so that its treatments are checked again
	ss.marks = [2]agentapi.Marks{client.Marks, server.Marks}
	t, h := x.sessions, x.history
	x.mu.Lock()
	defer x.mu.Unlock()
	a, b := x.agents.Get(about.ClientAgent), x.agents.Get(about.ServerAgent)
	if a == nil || b == nil || t.byFlow[ss.flow] != nil {
		return nil
	}
	ss.assignAgents(a, b)
	t.byFlow[ss.flow], t.byID[id] = ss, ss
	t.noteAgentFlows(ss)
	if o := h.orphans[id]; o != nil {
		delete(h.orphans, id)
		for role, r := range o.ended {
			ss.ended[role] = r
			ss.recordCounters(role, r.Counters, time.Now())
		}
	}
	if len(ss.ended) == 2 {
		close(ss.bothEnded)
	}
	for _, r := range roles {
		if side := ss.Layout.side(r); len(side.Path) > 0 {
			ss.agent(r).Assume(side.Agent, agents.Place{At: side.agentAt(), MAC: side.AgentMAC, VLAN: side.AgentVLAN})
		}
	}
	x.takeoverResult.Sessions++
	x.metrics.up.Inc() // the totals include only sessions that have ended
	return ss
}

// awaitNetwork waits, up to a deadline, until the switches and links of the sessions and
// the treatments promised to them are known again. Nothing in the switches is changed
// before Ready.
func (x *recovery) awaitNetwork(ctx context.Context, all []*session) {
	settle, cancel := context.WithTimeout(ctx, x.opts.Settle)
	defer cancel()
	for !x.pathsKnown(all) && tasks.Sleep(settle, settleEvery) == nil {
	}
	promises, cancel := context.WithTimeout(ctx, x.opts.Settle)
	defer cancel()
	x.treatments.Await(promises)
}

// pathsKnown reports whether the paths of all sessions exist again: those to their agents
// and, where both agents are in one network, those between them.
func (x *recovery) pathsKnown(all []*session) bool {
	top := x.net.Topology()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, ss := range all {
		l := &ss.Layout
		if !valid(top, [][]network.Hop{l.ClientSide.Path, l.ServerSide.Path}) {
			return false
		}
		a, b := ss.client.State().Places[l.ClientSide.Agent], ss.server.State().Places[l.ServerSide.Agent]
		if _, ok := top.Path(a.At, b.At, network.MetricHops); !ok && l.Steered {
			return false
		}
	}
	return true
}

// redeclare declares a session's rules in the ledger again. The switches have them already,
// so nothing is sent unless a path has changed.
func (x *recovery) redeclare(ctx context.Context, ss *session) {
	ctx, cancel := context.WithTimeout(ctx, declareTimeout)
	defer cancel()
	for _, r := range roles {
		next, _ := x.reconciler.updatedLayout(ss, r)
		x.mu.Lock()
		*ss.Layout.side(r) = *next.side(r)
		x.mu.Unlock()
	}
	x.mu.Lock()
	ss.Layout.updateTreatments(x.treatments.Of)
	x.mu.Unlock()
	options := rule.ApplyOptions{AllowDown: true}
	err := x.writeSide(ctx, ss, &ss.Layout, agentapi.RoleServer, options)
	if err == nil {
		err = x.pairs.acquire(ctx, ss)
	}
	if err == nil {
		err = x.writeSide(ctx, ss, &ss.Layout, agentapi.RoleClient, options)
	}
	if err != nil {
		x.log.Warn("rules of a session could not be declared again", "session", ss.id, "error", err)
	}
	x.publish("session.taken-over", map[string]any{"session": ss.id, "client": ss.flow.client, "server": ss.flow.server})
}

// activate makes a session that was taken over live. If the session ended while its rules
// were being declared, activate ends it.
func (x *recovery) activate(ss *session) {
	x.mu.Lock()
	ss.enter(StateLive)
	ended := len(ss.ended) > 0
	x.mu.Unlock()
	if ended {
		x.endings.windUp(ss)
	}
}
