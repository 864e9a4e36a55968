package sos

import (
	"context"
	"errors"
	"math"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

const (
	// settleEvery is the interval at which the network is checked until it has settled.
	settleEvery = 50 * time.Millisecond
	// declareTimeout bounds the time to declare the rules of one session again after a start.
	declareTimeout = 5 * time.Second
)

// takeover is the result of a start, as the status shows it.
type takeover struct {
	Sessions int `json:"sessions" doc:"Live sessions found at the agents when the controller started"`
	Dropped  int `json:"dropped" doc:"Sessions that only one agent knew, or that could not be rebuilt"`
}

// recovery is a start of the service, with the sessions that it finds at agents.
type recovery struct {
	*Service
	found map[agentapi.SessionID]*foundSession
}

// takeOver finds the sessions that agents have carried since before the start, and declares their
// rules again. It then lets the ledger remove the rules that nobody has declared.
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
	// These come after the others, because a connection may have been given to other agents
	// meanwhile.
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

// rebuild restores a session from the reports of both of its agents. It returns nil for a session
// that was still being prepared, because the controller that held its first packet is gone. It also
// returns nil for a session that only one agent knows.
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
	ss.epoch = math.MaxUint64 // an epoch that never occurs, so that the treatments are checked again
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

// awaitNetwork waits, up to a deadline, until the switches and links of the sessions and the
// treatments promised to them are known again. Rules in the switches do not change before the
// ledger's Ready is called.
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

const (
	// askTimeout bounds how long a start waits for agents, unless another agent carries sessions
	// with an agent that has not answered.
	askTimeout = 3 * time.Second
	// endTimeout bounds how long a start waits for one agent to report the end of a session
	// that another agent still has.
	endTimeout = time.Second
	// justEnded is the age up to which the rules of an ended session are kept for a while. It
	// allows for clocks that differ.
	justEnded = 5 * time.Second
)

// foundSession is a session that agents list, or whose end they report.
type foundSession struct {
	reports map[agentapi.Role]agentapi.Session
	agents  map[agentapi.Role]*agent
}

// hasBegun reports whether an agent may have carried data. A session that is only prepared is
// connected to neither the client nor the server.
func (f *foundSession) hasBegun() bool {
	for _, x := range f.reports {
		if x.Phase != agentapi.PhasePrepared {
			return true
		}
	}
	return false
}

// mayCarry reports whether the agent in a role may have carried data. An agent whose session is
// only prepared carries none, and a session that ended at the agent before it was running never
// will.
func (f *foundSession) mayCarry(r agentapi.Role) bool {
	x, ok := f.reports[r]
	live := f.agents[r] != nil
	return ok && x.Phase != agentapi.PhasePrepared && (live || x.Phase != agentapi.PhaseCommitted)
}

// isHalf reports whether one agent carries the session and the other does not report it.
func (f *foundSession) isHalf() bool { return len(f.reports) == 1 && f.hasBegun() }

// askAgents collects the lists of sessions of all agents that answer in time. It waits longer for
// an agent that does not answer while another agent carries a session with it. The agent may be
// alive, and its sessions' rules are removed when the start is over.
func (x *recovery) askAgents(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, max(askTimeout, x.opts.Settle))
	defer cancel()
	all := x.agents.List()
	answers := make(chan func(), len(all))
	for _, a := range all {
		x.start(func(context.Context) {
			list, err := x.queryAgent(ctx, a)
			answers <- func() { x.collect(a, list, err) }
		})
	}
	began := time.Now()
	ticker := time.NewTicker(settleEvery)
	defer ticker.Stop()
	for left := len(all); left > 0; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if time.Since(began) > askTimeout && !x.anyHalf() {
				return
			}
		case take := <-answers:
			left--
			take()
		}
	}
}

// collect adds the sessions that an agent lists to found.
func (x *recovery) collect(a *agent, list []agentapi.Session, err error) {
	if err != nil {
		x.log.Warn("agent does not say which sessions it carries", "agent", a.Name, "error", err)
	}
	for _, s := range list {
		f := x.lookup(s.ID)
		f.reports[s.Role], f.agents[s.Role] = s, a
	}
}

// lookup returns the entry of a session in found, and creates it if there is none.
func (x *recovery) lookup(id agentapi.SessionID) *foundSession {
	if x.found[id] == nil {
		x.found[id] = &foundSession{reports: map[agentapi.Role]agentapi.Session{}, agents: map[agentapi.Role]*agent{}}
	}
	return x.found[id]
}

func (x *recovery) anyHalf() bool {
	for _, f := range x.found {
		if f.isHalf() {
			return true
		}
	}
	return false
}

// queryAgent asks an agent for its status and its sessions until it answers, or until its
// machine refuses the connection, which means that no agent runs there.
func (x *recovery) queryAgent(ctx context.Context, a *agent) ([]agentapi.Session, error) {
	for {
		list, err := a.Client.Sessions(ctx)
		if err == nil {
			_ = x.agents.Ask(ctx, a) // an agent that does not answer is asked again when it is heard
			return list, nil
		}
		if errors.Is(err, syscall.ECONNREFUSED) || tasks.Sleep(ctx, 200*time.Millisecond) != nil {
			return nil, err
		}
	}
}

// awaitEnds waits until every agent that has answered has also reported the sessions that ended
// lately. It adds reported ends to sessions that one agent had ended before it was asked, and that
// the other agent still lists.
func (x *recovery) awaitEnds(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for {
		x.mu.Lock()
		for id, f := range x.found {
			o := x.history.orphans[id]
			for _, role := range roles {
				if _, listed := f.reports[role]; !listed && o != nil && o.ended[role].ID == id {
					f.reports[role] = o.ended[role].Session
				}
			}
		}
		reported := x.allReported()
		x.mu.Unlock()
		if reported && !x.anyHalf() || tasks.Sleep(ctx, settleEvery) != nil {
			return
		}
	}
}

// allReported reports whether every agent that has answered has sent an event. The first
// event repeats the sessions that ended lately.
func (x *recovery) allReported() bool {
	for _, a := range x.agents.List() {
		if st := a.State(); st.Status.Instance != "" && st.Liveness != agents.Up {
			return false
		}
	}
	return true
}

// addEnding adds the sessions that have just ended to found. Their rules have to stay while their
// last segments are being acknowledged.
func (x *recovery) addEnding() {
	x.mu.Lock()
	defer x.mu.Unlock()
	known := x.history.known()
	for id, o := range x.history.orphans {
		client, server := o.ended[agentapi.RoleClient], o.ended[agentapi.RoleServer]
		if x.found[id] == nil && !known[id.String()] && time.Since(client.Ended) < justEnded && time.Since(server.Ended) < justEnded {
			f := x.lookup(id)
			f.reports[agentapi.RoleClient], f.reports[agentapi.RoleServer] = client.Session, server.Session
		}
	}
}

// leftover is a session that cannot be taken over. Until clear has ended it, its connection stays
// registered. The rules for resetting an end would also match the packets of a new connection with
// the same ports, so the client has to wait until they are removed.
type leftover struct {
	*recovery
	reported *foundSession
	ss       *session
}

// abandon gives up a session that cannot be taken over.
func (x *recovery) abandon(id agentapi.SessionID, f *foundSession) *leftover {
	about := sessionContext{Started: time.Now()}
	for _, s := range f.reports {
		if c, ok := readContext(s.Context); ok {
			about = c
		}
	}
	ss := newSession(id, about)
	ss.how = "after a restart of the controller its agents did not both know it"
	ss.enter(StateResetting)
	for role, s := range f.reports {
		ss.last[role] = s.Counters
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.takeoverResult.Dropped++
	x.history.forgetOrphan(id)
	if x.sessions.byFlow[ss.flow] == nil && ss.flow.client.IsValid() {
		x.sessions.byFlow[ss.flow] = ss
	}
	return &leftover{x, f, ss}
}

// clear ends a leftover session. The agents that know it reset their connections, and the
// controller resets the end hosts whose agents do not report it.
func (x *leftover) clear(ctx context.Context) {
	defer x.cleared()
	ss := x.ss
	for _, r := range roles {
		if a := x.reported.agents[r]; a != nil {
			x.abort(ss.id, a)
		}
	}
	x.mu.Lock()
	mine := x.sessions.byFlow[ss.flow] == ss
	x.mu.Unlock()
	if !mine || !x.reported.isHalf() {
		// The client's connection uses other agents by now, or never reached these.
		return
	}
	for _, r := range roles {
		path := ss.Layout.side(r).Path
		if _, ok := x.reported.reports[r]; ok || len(path) == 0 {
			continue
		}
		for deadline := time.Now().Add(x.opts.Settle); !x.net.Topology().Has(path[0].Switch) && time.Now().Before(deadline); {
			if tasks.Sleep(ctx, settleEvery) != nil {
				return
			}
		}
		x.resets.notify(ctx, ss, r)
		x.endings.removeSide(ctx, ss, r)
	}
}

// cleared removes the session. If the session was ever established, cleared moves it to the
// history.
func (x *leftover) cleared() {
	x.mu.Lock()
	defer x.mu.Unlock()
	close(x.ss.over)
	if x.sessions.byFlow[x.ss.flow] == x.ss {
		delete(x.sessions.byFlow, x.ss.flow)
	}
	if x.reported.isHalf() {
		x.ss.enter(StateEnded)
		x.history.carried(x.ss.record())
	}
}
