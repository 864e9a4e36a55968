package plugin

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/service/agents"
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
)

// found is a session as its agents list it, or tell of its end.
type found struct {
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

// askAgents lists the sessions of all agents that answer in time. An agent that does
// not is waited for longer while another carries a session with it: it may be alive,
// and its sessions' rules go when the start is over.
func (x *recovery) askAgents(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, max(askTimeout, x.opts.Settle))
	defer cancel()
	all := x.agents.List()
	answers := make(chan func(), len(all))
	for _, a := range all {
		x.start(func(context.Context) {
			list, err := x.introduce(ctx, a)
			answers <- func() { x.take(a, list, err) }
		})
	}
	began := time.Now()
	look := time.NewTicker(settleEvery)
	defer look.Stop()
	for left := len(all); left > 0; {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if time.Since(began) > askTimeout && !x.anyHalf() {
				return
			}
		case take := <-answers:
			left--
			take()
		}
	}
}

// take takes in what an agent lists.
func (x *recovery) take(a *agent, list []agentapi.Session, err error) {
	if err != nil {
		x.log.Warn("agent does not say which sessions it carries", "agent", a.Name, "error", err)
	}
	for _, s := range list {
		f := x.at(s.ID)
		f.seen[s.Role], f.at[s.Role] = s, a
	}
}

// at is what has been found of a session so far.
func (x *recovery) at(id agentapi.SessionID) *found {
	if x.found[id] == nil {
		x.found[id] = &found{seen: map[agentapi.Role]agentapi.Session{}, at: map[agentapi.Role]*agent{}}
	}
	return x.found[id]
}

func (x *recovery) anyHalf() bool {
	for _, f := range x.found {
		if f.half() {
			return true
		}
	}
	return false
}

// introduce asks an agent what a start needs to know of it until there is an answer,
// or its machine says that it does not run.
func (x *recovery) introduce(ctx context.Context, a *agent) ([]agentapi.Session, error) {
	for {
		list, err := a.Client.Sessions(ctx)
		if err == nil {
			_ = x.agents.Ask(ctx, a) // if it does not answer, it will be asked again when it is heard
			return list, nil
		}
		if errors.Is(err, syscall.ECONNREFUSED) || tasks.Sleep(ctx, 200*time.Millisecond) != nil {
			return nil, err
		}
	}
}

// awaitEnds waits until every agent that has answered has also told of what has ended
// lately, and completes the sessions that one agent has ended before it was asked, and
// the other not yet.
func (x *recovery) awaitEnds(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for {
		x.mu.Lock()
		for id, f := range x.found {
			o := x.history.orphans[id]
			for _, role := range bothRole {
				if _, listed := f.seen[role]; !listed && o != nil && o.ended[role].ID == id {
					f.seen[role] = o.ended[role].Session
				}
			}
		}
		told := x.allTold()
		x.mu.Unlock()
		if told && !x.anyHalf() || tasks.Sleep(ctx, settleEvery) != nil {
			return
		}
	}
}

// allTold says whether every agent that has answered has sent an event: the first
// repeats what has ended lately.
func (x *recovery) allTold() bool {
	for _, a := range x.agents.List() {
		if st := a.State(); st.Status.Instance != "" && st.Liveness != agents.Up {
			return false
		}
	}
	return true
}

// addEnding adds the sessions that have just ended: while their last segments are being
// acknowledged, their rules have to stay.
func (x *recovery) addEnding() {
	x.mu.Lock()
	defer x.mu.Unlock()
	known := x.history.known()
	for id, o := range x.history.orphans {
		client, server := o.ended[agentapi.RoleClient], o.ended[agentapi.RoleServer]
		if x.found[id] == nil && !known[id.String()] && time.Since(client.Ended) < justEnded && time.Since(server.Ended) < justEnded {
			f := x.at(id)
			f.seen[agentapi.RoleClient], f.seen[agentapi.RoleServer] = client.Session, server.Session
		}
	}
}
