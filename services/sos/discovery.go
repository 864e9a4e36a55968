package sos

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

const (
	// askTimeout bounds how long a start waits for agents, unless other agents carry
	// sessions with them.
	askTimeout = 3 * time.Second
	// endTimeout bounds how long a start waits for one agent to report the end of a session
	// that another agent still has.
	endTimeout = time.Second
	// justEnded is the age up to which the rules of an ended session are not removed at
	// once. It has room for clocks that differ.
	justEnded = 5 * time.Second
)

// foundSession is a session as its agents list it or report its end.
type foundSession struct {
	reports map[agentapi.Role]agentapi.Session
	agents  map[agentapi.Role]*agent
}

// hasBegun reports whether an agent may have carried data: a session that is only prepared
// has neither the client nor the server.
func (f *foundSession) hasBegun() bool {
	for _, x := range f.reports {
		if x.Phase != agentapi.PhasePrepared {
			return true
		}
	}
	return false
}

// mayCarry reports whether the agent in a role may have carried data. An agent that is only
// prepared carries none, and a session that ended at the agent before it was running never
// will.
func (f *foundSession) mayCarry(r agentapi.Role) bool {
	x, ok := f.reports[r]
	live := f.agents[r] != nil
	return ok && x.Phase != agentapi.PhasePrepared && (live || x.Phase != agentapi.PhaseCommitted)
}

// isHalf reports whether one agent carries the session and the other does not report it.
func (f *foundSession) isHalf() bool { return len(f.reports) == 1 && f.hasBegun() }

// askAgents lists the sessions of all agents that answer in time. It waits longer for an
// agent that does not answer while another carries a session with it: the agent may be
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

// collect adds what an agent lists to the sessions found.
func (x *recovery) collect(a *agent, list []agentapi.Session, err error) {
	if err != nil {
		x.log.Warn("agent does not say which sessions it carries", "agent", a.Name, "error", err)
	}
	for _, s := range list {
		f := x.lookup(s.ID)
		f.reports[s.Role], f.agents[s.Role] = s, a
	}
}

// lookup returns what has been found of a session so far.
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

// awaitEnds waits until every agent that has answered has also reported the sessions that
// ended lately. It completes the sessions that one agent ended before it was asked and the
// other has not ended yet.
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

// addEnding adds the sessions that have just ended: their rules have to stay while their
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
