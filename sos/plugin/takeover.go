package plugin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/sos/agentapi"
)

const (
	// askTimeout bounds how long agents are waited for at the start.
	askTimeout = 3 * time.Second
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

func (ss *session) context() sessionContext {
	return sessionContext{
		Layout: ss.layout, ClientAt: ss.clientAt, ServerAt: ss.serverAt, Entry: ss.entry, Tuning: ss.tuning,
		Client: ss.client.record.Name, Server: ss.server.record.Name, Started: ss.started,
	}
}

// takeover says how the start went, for the status.
type takeover struct {
	Sessions int `json:"sessions" doc:"Live sessions found at the agents when the controller started"`
	Dropped  int `json:"dropped" doc:"Sessions that only one agent knew, or that could not be rebuilt"`
}

// found is a session as its agents list it.
type found struct {
	ctx  sessionContext
	seen map[agentapi.Role]agentapi.Session
	at   map[agentapi.Role]*agent
}

// takeOver finds the sessions that run without us since before the start,
// declares their rules again, and then lets the network remove what nobody
// declared.
func (s *Service) takeOver(ctx context.Context) {
	sessions := s.askAgents(ctx)
	var all []*session
	for id, f := range sessions {
		ss, ok := s.rebuild(id, f)
		if !ok {
			s.mu.Lock()
			s.taken.Dropped++
			s.mu.Unlock()
			left := s.leftOver(id, f)
			s.start(func(ctx context.Context) { s.clearAway(ctx, left, f) })
			continue
		}
		all = append(all, ss)
	}
	if len(all) > 0 {
		s.awaitSwitches(ctx, all)
	}
	for _, ss := range all {
		s.redeclare(ctx, ss)
		s.enliven(ss)
	}
	s.redeclarePunts(ctx)
	s.redeclareGuards(ctx)
	s.rules.Ready()
	if len(sessions) > 0 {
		s.log.Info("sessions taken over", "sessions", len(all), "dropped", len(sessions)-len(all))
	}
}

// askAgents lists the sessions of all agents that answer in time.
func (s *Service) askAgents(ctx context.Context) map[agentapi.SessionID]*found {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s.mu.Lock()
	agents := make([]*agent, 0, len(s.agents))
	for _, a := range s.agents {
		agents = append(agents, a)
	}
	s.mu.Unlock()
	type answer struct {
		a    *agent
		list []agentapi.Session
		err  error
	}
	answers := make(chan answer, len(agents))
	for _, a := range agents {
		s.start(func(context.Context) {
			list, err := listSessions(ctx, a)
			answers <- answer{a, list, err}
		})
	}
	sessions := map[agentapi.SessionID]*found{}
	for range agents {
		select {
		case <-ctx.Done():
			return sessions
		case r := <-answers:
			if r.err != nil {
				s.log.Warn("agent does not say which sessions it carries", "agent", r.a.record.Name, "error", r.err)
			}
			for _, x := range r.list {
				sessions[x.ID] = sessions[x.ID].with(r.a, x)
			}
		}
	}
	return sessions
}

// listSessions asks until there is an answer or no time left.
func listSessions(ctx context.Context, a *agent) ([]agentapi.Session, error) {
	for {
		list, err := a.client.Sessions(ctx)
		if err == nil || !sleep(ctx, 200*time.Millisecond) {
			return list, err
		}
	}
}

func (f *found) with(a *agent, x agentapi.Session) *found {
	if f == nil {
		f = &found{seen: map[agentapi.Role]agentapi.Session{}, at: map[agentapi.Role]*agent{}}
	}
	f.seen[x.Role], f.at[x.Role] = x, a
	return f
}

// rebuild makes a session of what both its agents say. One that was still being
// prepared has lost the packet it was made for, and one that only one agent
// knows is lost.
func (s *Service) rebuild(id agentapi.SessionID, f *found) (*session, bool) {
	client, ok1 := f.seen[agentapi.RoleClient]
	server, ok2 := f.seen[agentapi.RoleServer]
	if !ok1 || !ok2 || client.Phase == agentapi.PhasePrepared || server.Phase == agentapi.PhasePrepared {
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
	ss.id, ss.layout = id, c.Layout
	ss.clientAt, ss.serverAt = c.ClientAt, c.ServerAt
	ss.client, ss.server = f.at[agentapi.RoleClient], f.at[agentapi.RoleServer]
	if err := ss.layout.settle(client.Reply, server.Reply); err != nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[fl] != nil {
		return nil, false
	}
	s.sessions[fl], s.byID[id] = ss, ss
	s.noteAgentFlows(ss)
	for _, r := range s.early[id] {
		ss.ended[r.Role] = r
	}
	if len(ss.ended) == 2 {
		close(ss.bothEnded)
	}
	ss.client.sessions++
	ss.server.sessions++
	for side, a := range map[*Side]*agent{&c.Layout.ClientSide: ss.client, &c.Layout.ServerSide: ss.server} {
		if _, known := a.places[side.Agent]; !known && len(side.Path) > 0 {
			last := side.Path[len(side.Path)-1]
			a.places[side.Agent] = place{at: network.PortRef{Switch: last.Switch, Port: last.Out}, mac: side.AgentMAC, vlan: side.AgentVLAN}
		}
	}
	s.taken.Sessions++
	s.metrics.up.Inc() // the totals have those that have ended only
	return ss, true
}

// clearAway ends what is left of a session that cannot be taken over: the agents
// that know it reset their ends, the controller those of the others.
func (s *Service) clearAway(ctx context.Context, ss *session, f *found) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.sessions[ss.flow] == ss {
			delete(s.sessions, ss.flow)
		}
	}()
	for _, r := range bothRole {
		if a := f.at[r]; a != nil {
			s.abort(ss.id, a)
		}
	}
	for _, r := range bothRole {
		if f.at[r] != nil || len(ss.layout.side(r).Path) == 0 {
			continue
		}
		first := ss.layout.side(r).Path[0].Switch
		for deadline := time.Now().Add(s.opts.Settle); !s.fabric.Topology().Has(first) && time.Now().Before(deadline); {
			if !sleep(ctx, settleEvery) {
				return
			}
		}
		s.resetEnd(ctx, ss, r)
		if err := s.rules.Remove(ctx, ss.key(r)); err != nil {
			s.log.Warn("rules could not be removed", "session", ss.id, "error", err)
		}
	}
}

// leftOver describes a session that cannot be taken over. Until it is cleared away
// its connection is known: the rules by which an end is reset would catch a new
// connection's packets, so its client has to wait for their removal.
func (s *Service) leftOver(id agentapi.SessionID, f *found) *session {
	ss := &session{id: id, state: StateResetting, started: time.Now(), how: "cannot be taken over"}
	for _, r := range bothRole {
		var about sessionContext
		if f.at[r] != nil && json.Unmarshal(f.seen[r].Context, &about) == nil {
			ss.layout, ss.flow = about.Layout, flow{about.Layout.Client, about.Layout.Server}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[ss.flow] == nil && ss.flow.client.IsValid() {
		s.sessions[ss.flow] = ss
	}
	return ss
}

// awaitSwitches waits until the switches and links of the sessions are known
// again, but not for ever: until Ready nothing in the switches is touched.
func (s *Service) awaitSwitches(ctx context.Context, all []*session) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Settle)
	defer cancel()
	for {
		top, missing := s.fabric.Topology(), false
		for _, ss := range all {
			missing = missing || !valid(top, [][]network.Hop{ss.layout.ClientSide.Path, ss.layout.ServerSide.Path})
		}
		if !missing && s.agentsConnected(all) || !sleep(ctx, settleEvery) {
			return
		}
	}
}

// agentsConnected says whether the way between the agents is known again, for
// those sessions that have both agents in one network.
func (s *Service) agentsConnected(all []*session) bool {
	top := s.fabric.Topology()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ss := range all {
		x, y := ss.client.places[ss.layout.ClientSide.Agent], ss.server.places[ss.layout.ServerSide.Agent]
		if _, ok := top.Path(x.at, y.at, network.MetricHops); !ok && ss.layout.Steered {
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
	client, server, err := ss.layout.rules(s.fabric.CanSet)
	if err == nil {
		options := rule.ApplyOptions{AllowDown: true}
		err = s.rules.Apply(ctx, ss.key(agentapi.RoleServer), rule.Program{Rules: server}, options)
		if err == nil {
			err = s.usePair(ctx, ss)
		}
		if err == nil {
			err = s.rules.Apply(ctx, ss.key(agentapi.RoleClient), rule.Program{Rules: client}, options)
		}
	}
	if err != nil {
		s.log.Warn("rules of a session could not be declared again", "session", ss.id, "error", err)
	}
	s.publish("session-taken-over", map[string]any{"session": ss.id, "client": ss.flow.client, "server": ss.flow.server})
}

// enliven makes a session that was taken over a live one, or ends it if that
// happened while its rules were being declared.
func (s *Service) enliven(ss *session) {
	s.mu.Lock()
	ss.state = StateLive
	ended := len(ss.ended) > 0
	s.mu.Unlock()
	if ended {
		s.windUp(ss)
	}
}
