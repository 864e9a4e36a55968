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

// askAgents lists the sessions of all agents that answer in time. An agent that does
// not is waited for longer while another carries a session with it: it may be alive,
// and its sessions' rules go when the start is over.
func (s *Service) askAgents(ctx context.Context) map[agentapi.SessionID]*found {
	ctx, cancel := context.WithTimeout(ctx, max(askTimeout, s.opts.Settle))
	defer cancel()
	all := s.agents.List()
	type answer struct {
		a    *agent
		list []agentapi.Session
		err  error
	}
	answers := make(chan answer, len(all))
	for _, a := range all {
		s.start(func(context.Context) {
			list, err := s.introduce(ctx, a)
			answers <- answer{a, list, err}
		})
	}
	sessions := map[agentapi.SessionID]*found{}
	began := time.Now()
	look := time.NewTicker(settleEvery)
	defer look.Stop()
	for left := len(all); left > 0; {
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
				s.log.Warn("agent does not say which sessions it carries", "agent", r.a.Name, "error", r.err)
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
		list, err := a.Client.Sessions(ctx)
		if err == nil {
			_ = s.agents.Ask(ctx, a) // if it does not answer, it will be asked again when it is heard
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
		told := s.allTold()
		s.mu.Unlock()
		if told && !anyHalf(sessions) || tasks.Sleep(ctx, settleEvery) != nil {
			return
		}
	}
}

// allTold says whether every agent that has answered has sent an event: the first
// repeats what has ended lately.
func (s *Service) allTold() bool {
	for _, a := range s.agents.List() {
		if st := a.State(); st.Status.Instance != "" && st.Liveness != agents.Up {
			return false
		}
	}
	return true
}

// addEnding adds the sessions that have just ended: while their last segments are being
// acknowledged, their rules have to stay.
func (s *Service) addEnding(sessions map[agentapi.SessionID]*found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.history.known()
	for id, o := range s.orphans {
		client, server := o.ended[agentapi.RoleClient], o.ended[agentapi.RoleServer]
		if sessions[id] == nil && !known[id.String()] && time.Since(client.Ended) < justEnded && time.Since(server.Ended) < justEnded {
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
