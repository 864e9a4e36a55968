package plugin

import (
	"context"
	"math"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/service/agents"
	"github.com/sluice-net/sluice/sos/agentapi"
)

const (
	// settleEvery is how often the network is looked at while it settles.
	settleEvery = 50 * time.Millisecond
	// declareTimeout bounds how long the rules of one session are declared again.
	declareTimeout = 5 * time.Second
)

// takeover says how the start went, for the status.
type takeover struct {
	Sessions int `json:"sessions" doc:"Live sessions found at the agents when the controller started"`
	Dropped  int `json:"dropped" doc:"Sessions that only one agent knew, or that could not be rebuilt"`
}

// recovery is a start of the service, with the sessions that it finds at agents.
type recovery struct {
	*Service
	found map[agentapi.SessionID]*found
}

// takeOver finds the sessions that run without us since before the start,
// declares their rules again, and then lets the network remove what nobody
// declared.
func (s *Service) takeOver(ctx context.Context) {
	x := &recovery{s, map[agentapi.SessionID]*found{}}
	x.askAgents(ctx)
	x.awaitEnds(ctx)
	x.addEnding()
	var all []*session
	var left []agentapi.SessionID
	for id, f := range x.found {
		if ss := x.rebuild(id, f); ss != nil {
			all = append(all, ss)
		} else if len(f.at) > 0 {
			left = append(left, id)
		}
	}
	// After the others: a connection may have been given to other agents since.
	for _, id := range left {
		s.start(x.leave(id, x.found[id]).clear)
	}
	if len(all) > 0 {
		x.awaitNetwork(ctx, all)
	}
	for _, ss := range all {
		x.redeclare(ctx, ss)
		x.enliven(ss)
	}
	s.selection.punts.keep(ctx, s.selection.punts.latest(), network.ApplyOptions{AllowDown: true})
	s.guards.keep(ctx, s.wantedGuards(), network.ApplyOptions{AllowDown: true})
	s.rules.Ready()
	if len(x.found) > 0 {
		s.log.Info("sessions taken over", "sessions", len(all), "dropped", len(left))
	}
}

// rebuild makes a session of what both its agents say. One that was still being
// prepared has lost the packet it was made for, and one that only one agent
// knows is lost: nil.
func (x *recovery) rebuild(id agentapi.SessionID, f *found) *session {
	client, server := f.seen[agentapi.RoleClient], f.seen[agentapi.RoleServer]
	if !f.carries(agentapi.RoleClient) || !f.carries(agentapi.RoleServer) {
		return nil
	}
	about, ok := readContext(client.Context)
	ss := newSession(id, about)
	if !ok || ss.flow != (flow{client.Client, client.Server}) || ss.Layout.settle(client.Reply, server.Reply) != nil {
		return nil
	}
	ss.enter(StateSetup)
	ss.epoch = math.MaxUint64 // what it has is looked at again
	ss.marks = [2]agentapi.Marks{client.Marks, server.Marks}
	t, h := x.sessions, x.history
	x.mu.Lock()
	defer x.mu.Unlock()
	a, b := x.agents.Get(about.ClientAgent), x.agents.Get(about.ServerAgent)
	if a == nil || b == nil || t.byFlow[ss.flow] != nil {
		return nil
	}
	ss.take(a, b)
	t.byFlow[ss.flow], t.byID[id] = ss, ss
	t.noteAgentFlows(ss)
	if o := h.orphans[id]; o != nil {
		delete(h.orphans, id)
		for role, r := range o.ended {
			ss.ended[role] = r
			ss.progress(role, r.Counters, time.Now())
		}
	}
	if len(ss.ended) == 2 {
		close(ss.bothEnded)
	}
	for _, r := range bothRole {
		if side := ss.Layout.side(r); len(side.Path) > 0 {
			ss.agent(r).Assume(side.Agent, agents.Place{At: side.agentAt(), MAC: side.AgentMAC, VLAN: side.AgentVLAN})
		}
	}
	x.taken.Sessions++
	x.metrics.up.Inc() // the totals have those that have ended only
	return ss
}

// awaitNetwork waits until the switches and links of the sessions are known again, and
// what is promised to them, but not for ever: until Ready nothing in the switches is
// touched.
func (x *recovery) awaitNetwork(ctx context.Context, all []*session) {
	settle, cancel := context.WithTimeout(ctx, x.opts.Settle)
	defer cancel()
	for !x.connected(all) && tasks.Sleep(settle, settleEvery) == nil {
	}
	promises, cancel := context.WithTimeout(ctx, x.opts.Settle)
	defer cancel()
	x.treatments.Await(promises)
}

// connected says whether the ways of sessions are there again: those to their agents and,
// where both agents are in one network, those between them.
func (x *recovery) connected(all []*session) bool {
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

// redeclare brings a session's rules back into the ledger; the switches have
// them already, so nothing is sent unless the way has changed.
func (x *recovery) redeclare(ctx context.Context, ss *session) {
	ctx, cancel := context.WithTimeout(ctx, declareTimeout)
	defer cancel()
	for _, r := range bothRole {
		next, _ := x.keeper.nextLayout(ss, r)
		x.mu.Lock()
		*ss.Layout.side(r) = *next.side(r)
		x.mu.Unlock()
	}
	x.mu.Lock()
	ss.Layout.treat(x.treatments.Of)
	x.mu.Unlock()
	options := rule.ApplyOptions{AllowDown: true}
	err := x.writeSide(ctx, ss, &ss.Layout, agentapi.RoleServer, options)
	if err == nil {
		err = x.pairs.use(ctx, ss)
	}
	if err == nil {
		err = x.writeSide(ctx, ss, &ss.Layout, agentapi.RoleClient, options)
	}
	if err != nil {
		x.log.Warn("rules of a session could not be declared again", "session", ss.id, "error", err)
	}
	x.publish("session.taken-over", map[string]any{"session": ss.id, "client": ss.flow.client, "server": ss.flow.server})
}

// enliven makes a session that was taken over a live one, or ends it if that
// happened while its rules were being declared.
func (x *recovery) enliven(ss *session) {
	x.mu.Lock()
	ss.enter(StateLive)
	ended := len(ss.ended) > 0
	x.mu.Unlock()
	if ended {
		x.endings.windUp(ss)
	}
}
