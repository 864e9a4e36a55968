package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/sos/agentapi"
)

const (
	// askTimeout bounds how long agents are waited for at the start, unless others
	// carry sessions with them.
	askTimeout = 3 * time.Second
	// endTimeout bounds how long the start waits for one agent to say that a session
	// has ended which another still has.
	endTimeout = time.Second
	// justEnded is how long ago a session has ended whose rules are not removed at once,
	// with room for clocks that differ.
	justEnded = 5 * time.Second
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
		Client: ss.client.record.Name, Server: ss.server.record.Name, Started: ss.started,
	}
}

// takeover says how the start went, for the status.
type takeover struct {
	Sessions int `json:"sessions" doc:"Live sessions found at the agents when the controller started"`
	Dropped  int `json:"dropped" doc:"Sessions that only one agent knew, or that could not be rebuilt"`
}

// found is a session as its agents list it, or tell of its end.
type found struct {
	ctx  sessionContext
	seen map[agentapi.Role]agentapi.Session
	at   map[agentapi.Role]*agent
}

// begun says whether an agent may have carried something: one that is only
// prepared has neither the client nor the server.
func (f *found) begun() bool {
	for _, x := range f.seen {
		if x.Phase != agentapi.PhasePrepared {
			return true
		}
	}
	return false
}

// carries says whether the agent in a role may have carried something: while it is
// being prepared there is nothing to carry, and if it has ended before there was, there
// never will be.
func (f *found) carries(r agentapi.Role) bool {
	x, told := f.seen[r]
	live := f.at[r] != nil
	return told && x.Phase != agentapi.PhasePrepared && (live || x.Phase != agentapi.PhaseCommitted)
}

// half says whether an agent carries the session of which the other does not tell.
func (f *found) half() bool { return len(f.seen) == 1 && f.begun() }

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
	}
	for _, ss := range all {
		s.redeclare(ctx, ss)
		s.enliven(ss)
	}
	s.redeclarePunts(ctx)
	s.redeclareGuards(ctx)
	s.rules.Ready()
	if len(sessions) > 0 {
		s.log.Info("sessions taken over", "sessions", len(all), "dropped", len(left))
	}
}

// askAgents lists the sessions of all agents that answer in time. An agent that does
// not is waited for longer while another carries a session with it: it may be alive,
// and its sessions' rules go when the start is over.
func (s *Service) askAgents(ctx context.Context) map[agentapi.SessionID]*found {
	ctx, cancel := context.WithTimeout(ctx, max(askTimeout, s.opts.Settle))
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
			list, err := s.introduce(ctx, a)
			answers <- answer{a, list, err}
		})
	}
	sessions := map[agentapi.SessionID]*found{}
	began := time.Now()
	look := time.NewTicker(settleEvery)
	defer look.Stop()
	for left := len(agents); left > 0; {
		select {
		case <-ctx.Done():
			return sessions
		case <-look.C:
			if time.Since(began) > askTimeout && !anyHalf(sessions) {
				return sessions
			}
		case r := <-answers:
			left--
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

func anyHalf(sessions map[agentapi.SessionID]*found) bool {
	for _, f := range sessions {
		if f.half() {
			return true
		}
	}
	return false
}

// introduce asks an agent what a start needs to know of it until there is an answer,
// or its machine says that it does not run.
func (s *Service) introduce(ctx context.Context, a *agent) ([]agentapi.Session, error) {
	for {
		list, err := a.client.Sessions(ctx)
		if err == nil {
			if st, err := a.client.Status(ctx); err == nil {
				s.learn(a, st)
			}
			return list, nil
		}
		if errors.Is(err, syscall.ECONNREFUSED) || tasks.Sleep(ctx, 200*time.Millisecond) != nil {
			return nil, err
		}
	}
}

// awaitEnds completes the sessions that one agent has ended before it was asked, and
// the other not yet. What an agent tells of an end may come a moment later.
func (s *Service) awaitEnds(ctx context.Context, sessions map[agentapi.SessionID]*found) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for {
		s.mu.Lock()
		for id, f := range sessions {
			o := s.orphans[id]
			for _, role := range bothRole {
				if _, listed := f.seen[role]; !listed && o != nil && o.ended[role].ID == id {
					f.seen[role] = o.ended[role].Session
				}
			}
		}
		s.mu.Unlock()
		if !anyHalf(sessions) || tasks.Sleep(ctx, settleEvery) != nil {
			return
		}
	}
}

// addEnding adds the sessions that have just ended: while their last segments are being
// acknowledged, their rules have to stay.
func (s *Service) addEnding(sessions map[agentapi.SessionID]*found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, o := range s.orphans {
		client, server := o.ended[agentapi.RoleClient], o.ended[agentapi.RoleServer]
		if sessions[id] == nil && !s.history.has(id.String()) && time.Since(client.Ended) < justEnded && time.Since(server.Ended) < justEnded {
			sessions[id] = &found{seen: map[agentapi.Role]agentapi.Session{
				agentapi.RoleClient: client.Session, agentapi.RoleServer: server.Session,
			}}
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
	ss.id = id
	if err := ss.layout.settle(client.Reply, server.Reply); err != nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ss.client, ss.server = s.agents[c.Client], s.agents[c.Server]
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

// leftOver describes a session that cannot be taken over. Until it is cleared away
// its connection is known: the rules by which an end is reset would catch a new
// connection's packets, so its client has to wait for their removal.
func (s *Service) leftOver(id agentapi.SessionID, f *found) *session {
	ss := &session{
		id: id, state: StateResetting, started: time.Now(), how: "after a restart of the controller its agents did not both know it",
		last: map[agentapi.Role]agentapi.Counters{}, ended: map[agentapi.Role]agentapi.SessionRecord{},
	}
	for role, x := range f.seen {
		if len(x.Context) <= maxContext && json.Unmarshal(x.Context, &f.ctx) == nil {
			ss.describe(f.ctx)
			ss.flow = flow{ss.layout.Client, ss.layout.Server}
		}
		ss.last[role] = x.Counters
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken.Dropped++
	delete(s.orphans, id)
	s.remembered = slices.DeleteFunc(s.remembered, func(r remembered) bool {
		if r.id == id {
			s.outlived = append(s.outlived, id) // it will be in the history when it is cleared away
		}
		return r.id == id
	})
	if s.sessions[ss.flow] == nil && ss.flow.client.IsValid() {
		s.sessions[ss.flow] = ss
	}
	return ss
}

// clearAway ends what is left of a session that cannot be taken over: the agents
// that know it reset their ends, the controller those of which nobody tells.
func (s *Service) clearAway(ctx context.Context, ss *session, f *found) {
	defer s.clearedAway(ss, f)
	for _, r := range bothRole {
		if a := f.at[r]; a != nil {
			s.abort(ss.id, a)
		}
	}
	s.mu.Lock()
	mine := s.sessions[ss.flow] == ss
	s.mu.Unlock()
	if !mine || !f.half() {
		// Its client is with other agents, or it never came to these.
		return
	}
	for _, r := range bothRole {
		if _, told := f.seen[r]; told || len(ss.layout.side(r).Path) == 0 {
			continue
		}
		first := ss.layout.side(r).Path[0].Switch
		for deadline := time.Now().Add(s.opts.Settle); !s.fabric.Topology().Has(first) && time.Now().Before(deadline); {
			if tasks.Sleep(ctx, settleEvery) != nil {
				return
			}
		}
		s.resetEnd(ctx, ss, r)
		if err := s.rules.Remove(ctx, ss.key(r)); err != nil {
			s.log.Warn("rules could not be removed", "session", ss.id, "error", err)
		}
	}
}

// clearedAway forgets a session that could not be taken over. If it ever was one, it
// is in the history then.
func (s *Service) clearedAway(ss *session, f *found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[ss.flow] == ss {
		delete(s.sessions, ss.flow)
	}
	if !f.half() {
		return
	}
	ss.state = StateEnded
	rec := s.recordOf(ss)
	rec.ClientAgent, rec.ServerAgent = f.ctx.Client, f.ctx.Server
	s.history.add(rec, s.config.History)
	s.metrics.up.Inc()
	s.metrics.ended(rec)
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
		if !missing && s.agentsConnected(all) || tasks.Sleep(ctx, settleEvery) != nil {
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
