package plugin

import (
	"context"
	"encoding/json"
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
	// maxContext is what an agent keeps for a session.
	maxContext = 16 << 10
)

// sessionContext is what the agents keep of a session for a controller that
// starts anew.
type sessionContext struct {
	Layout   Layout          `json:"layout"`
	ClientAt network.PortRef `json:"client_at"`
	ServerAt network.PortRef `json:"server_at"`
	Client   string          `json:"client"`
	Server   string          `json:"server"`
	Entry    string          `json:"entry"`
	Tuning   Tuning          `json:"tuning"`
	Started  time.Time       `json:"started"`
}

// describe gives the session what its agents have kept of it.
func (ss *session) describe(c sessionContext) {
	ss.layout, ss.clientAt, ss.serverAt = c.Layout, c.ClientAt, c.ServerAt
	ss.entry, ss.tuning, ss.started = c.Entry, c.Tuning, c.Started
}

func (ss *session) context() sessionContext {
	return sessionContext{
		Layout: ss.layout, ClientAt: ss.clientAt, ServerAt: ss.serverAt, Entry: ss.entry, Tuning: ss.tuning,
		Client: ss.client.Name, Server: ss.server.Name, Started: ss.started,
	}
}

// takeover says how the start went, for the status.
type takeover struct {
	Sessions int `json:"sessions" doc:"Live sessions found at the agents when the controller started"`
	Dropped  int `json:"dropped" doc:"Sessions that only one agent knew, or that could not be rebuilt"`
}

// takeOver finds the sessions that run without us since before the start,
// declares their rules again, and then lets the network remove what nobody
// declared.
func (s *Service) takeOver(ctx context.Context) {
	sessions := s.askAgents(ctx)
	s.awaitEnds(ctx, sessions)
	s.addEnding(sessions)
	var all []*session
	var left []agentapi.SessionID
	for id, f := range sessions {
		if ss, ok := s.rebuild(id, f); ok {
			all = append(all, ss)
		} else if len(f.at) > 0 {
			left = append(left, id)
		}
	}
	// After the others: a connection may have been given to other agents since.
	for _, id := range left {
		ss := s.leftOver(id, sessions[id])
		s.start(func(ctx context.Context) { s.clearAway(ctx, ss, sessions[id]) })
	}
	if len(all) > 0 {
		s.awaitSwitches(ctx, all)
		s.awaitTreatments(ctx)
	}
	for _, ss := range all {
		s.redeclare(ctx, ss)
		s.enliven(ss)
	}
	s.punts.keep(ctx, s.punts.latest(), network.ApplyOptions{AllowDown: true})
	s.guards.keep(ctx, s.wantedGuards(), network.ApplyOptions{AllowDown: true})
	s.rules.Ready()
	if len(sessions) > 0 {
		s.log.Info("sessions taken over", "sessions", len(all), "dropped", len(left))
	}
}

// rebuild makes a session of what both its agents say. One that was still being
// prepared has lost the packet it was made for, and one that only one agent
// knows is lost.
func (s *Service) rebuild(id agentapi.SessionID, f *found) (*session, bool) {
	client, server := f.seen[agentapi.RoleClient], f.seen[agentapi.RoleServer]
	if !f.carries(agentapi.RoleClient) || !f.carries(agentapi.RoleServer) {
		return nil, false
	}
	if len(client.Context) > maxContext || json.Unmarshal(client.Context, &f.ctx) != nil {
		return nil, false
	}
	c := f.ctx
	fl := flow{client.Client, client.Server}
	if c.Layout.Client != fl.client || c.Layout.Server != fl.server {
		return nil, false
	}
	ss := newSession(fl, &Entry{ID: c.Entry, Tuning: c.Tuning}, Tuning{}, c.Started)
	ss.describe(c)
	ss.id, ss.epoch = id, math.MaxUint64 // what it has is looked at again
	ss.marks = [2]agentapi.Marks{client.Marks, server.Marks}
	if err := ss.layout.settle(client.Reply, server.Reply); err != nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ss.client, ss.server = s.agents.Get(c.Client), s.agents.Get(c.Server)
	if ss.client == nil || ss.server == nil || s.sessions[fl] != nil {
		return nil, false
	}
	s.sessions[fl], s.byID[id] = ss, ss
	s.noteAgentFlows(ss)
	if o := s.orphans[id]; o != nil {
		delete(s.orphans, id)
		for role, r := range o.ended {
			ss.ended[role] = r
			ss.progress(role, r.Counters, time.Now())
		}
	}
	if len(ss.ended) == 2 {
		close(ss.bothEnded)
	}
	ss.client.Take()
	ss.server.Take()
	for side, a := range map[*Side]*agent{&c.Layout.ClientSide: ss.client, &c.Layout.ServerSide: ss.server} {
		if len(side.Path) > 0 {
			last := side.Path[len(side.Path)-1]
			a.Assume(side.Agent, agents.Place{At: network.PortRef{Switch: last.Switch, Port: last.Out}, MAC: side.AgentMAC, VLAN: side.AgentVLAN})
		}
	}
	s.taken.Sessions++
	s.metrics.up.Inc() // the totals have those that have ended only
	return ss, true
}

// awaitSwitches waits until the switches and links of the sessions are known
// again, but not for ever: until Ready nothing in the switches is touched.
func (s *Service) awaitSwitches(ctx context.Context, all []*session) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Settle)
	defer cancel()
	for {
		top, missing := s.net.Topology(), false
		for _, ss := range all {
			missing = missing || !valid(top, [][]network.Hop{ss.layout.ClientSide.Path, ss.layout.ServerSide.Path})
		}
		if !missing && s.agentsConnected(all) || tasks.Sleep(ctx, settleEvery) != nil {
			return
		}
	}
}

// agentsConnected says whether the way between the agents is known again, for
// those sessions that have both agents in one network.
func (s *Service) agentsConnected(all []*session) bool {
	top := s.net.Topology()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ss := range all {
		x, y := ss.client.State().Places[ss.layout.ClientSide.Agent], ss.server.State().Places[ss.layout.ServerSide.Agent]
		if _, ok := top.Path(x.At, y.At, network.MetricHops); !ok && ss.layout.Steered {
			return false
		}
	}
	return true
}

// redeclare brings a session's rules back into the ledger; the switches have
// them already, so nothing is sent unless the way has changed.
func (s *Service) redeclare(ctx context.Context, ss *session) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, r := range bothRole {
		next, _ := s.nextLayout(ss, r)
		s.mu.Lock()
		*ss.layout.side(r) = *next.side(r)
		s.mu.Unlock()
	}
	s.mu.Lock()
	ss.layout.treat(s.treatments.Of)
	s.mu.Unlock()
	options := rule.ApplyOptions{AllowDown: true}
	declare := func(r agentapi.Role) error {
		rules, err := s.rulesOf(&ss.layout, r)
		if err != nil {
			return err
		}
		return s.rules.Apply(ctx, ss.key(r), rule.Program{Rules: rules}, options)
	}
	err := declare(agentapi.RoleServer)
	if err == nil {
		err = s.usePair(ctx, ss)
	}
	if err == nil {
		err = declare(agentapi.RoleClient)
	}
	if err != nil {
		s.log.Warn("rules of a session could not be declared again", "session", ss.id, "error", err)
	}
	s.publish("session.taken-over", map[string]any{"session": ss.id, "client": ss.flow.client, "server": ss.flow.server})
}

// enliven makes a session that was taken over a live one, or ends it if that
// happened while its rules were being declared.
func (s *Service) enliven(ss *session) {
	s.mu.Lock()
	ss.enter(StateLive)
	ended := len(ss.ended) > 0
	s.mu.Unlock()
	if ended {
		s.windUp(ss)
	}
}
