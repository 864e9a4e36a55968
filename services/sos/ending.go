package sos

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

const (
	// secondEndTimeout is how long the second agent may take to end a session after the first agent
	// has. After that the second agent is told to end the session, unless the first agent closed it
	// in order.
	secondEndTimeout = 3 * time.Second
	// maxPendingAborts bounds the number of sessions that an agent is told to abort once it is
	// reachable again.
	maxPendingAborts = 4096
)

// endings handles sessions from the first report of their end until they are in the history.
type endings struct {
	*core
	sessions *sessions
	history  *history
	pairs    *pairs
	resets   *resets
	// pendingAborts lists the sessions that could not be aborted at agents; guarded by the
	// lock.
	pendingAborts map[*agent][]agentapi.SessionID
}

// agentDone handles an agent's report that it is done with a session. If before is set, the
// session may have ended before this controller was started.
func (s *endings) agentDone(r agentapi.SessionRecord, before bool) {
	s.mu.Lock()
	ss := s.sessions.byID[r.ID]
	if ss == nil {
		if before || !s.running {
			s.history.addOrphan(r)
		}
		s.mu.Unlock()
		return
	}
	if _, ok := ss.ended[r.Role]; !ok && len(ss.ended) == 1 {
		close(ss.bothEnded)
	}
	ss.ended[r.Role] = r
	s.sessions.leaveHalfOpen(ss)
	ss.recordCounters(r.Role, r.Counters, time.Now())
	live, first := ss.state == StateLive, len(ss.ended) == 1 // windUp is waiting for the second report already
	s.mu.Unlock()
	if live && first {
		s.windUp(ss)
	}
}

// windUp waits until the second agent is done, too, and then ends the session.
func (s *endings) windUp(ss *session) {
	s.start(func(ctx context.Context) {
		s.awaitSecond(ctx, ss)
		s.mu.Lock()
		mine, orderly := ss.state == StateLive, endedOrderly(ss.ended)
		if mine {
			if orderly {
				ss.enter(StateEnding)
			} else {
				ss.enter(StateResetting)
			}
			ss.how = describeEnd(ss.ended)
		}
		s.mu.Unlock()
		if !mine {
			return
		}
		if !orderly {
			// An agent that lost its peer may itself be cut off from its end host, which
			// would then wait forever.
			forBothRoles(func(r agentapi.Role) { s.resets.notify(ctx, ss, r) })
		}
		if tasks.Sleep(ctx, untilTick(time.Now(), s.opts.Linger)) == nil {
			s.end(ctx, ss)
		}
	})
}

// awaitSecond waits until the second agent is done as well. After an orderly end at the first
// agent, the second agent may take as long as its end host does, because it still carries data that
// the host has not read yet. Otherwise the second agent is told to end the session.
func (s *endings) awaitSecond(ctx context.Context, ss *session) {
	for !await(ctx, ss.bothEnded, secondEndTimeout) && ctx.Err() == nil {
		s.mu.Lock()
		mine, closed := ss.state == StateLive, true
		for _, r := range ss.ended {
			closed = closed && r.Reason == agentapi.ReasonClosed
		}
		s.mu.Unlock()
		if !mine {
			return
		}
		if !closed {
			s.abort(ss.id, ss.client, ss.server)
			await(ctx, ss.bothEnded, secondEndTimeout)
			return
		}
	}
}

// await waits until done is closed, d has passed or ctx ends, and reports whether done is
// closed.
func await(ctx context.Context, done <-chan struct{}, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// endTick is the interval at which rules of ended sessions are removed. The rules of many sessions
// are removed together, because Open vSwitch revalidates its whole cache after each change of its
// tables.
const endTick = 50 * time.Millisecond

// untilTick returns the time until the first tick after now+d.
func untilTick(now time.Time, d time.Duration) time.Duration {
	at := now.Add(d)
	return at.Truncate(endTick).Add(endTick).Sub(now)
}

// end removes the rules of a session and moves it to the history.
func (s *endings) end(ctx context.Context, ss *session) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ss.changing.Lock()
	s.removeRules(ctx, ss)
	ss.changing.Unlock()
	s.mu.Lock()
	s.sessions.remove(ss)
	close(ss.over)
	if ss.clientClosed() {
		s.sessions.completed.add(synID{ss.flow, ss.isn}, time.Now())
	}
	rec := s.history.finish(ss)
	s.mu.Unlock()
	s.metrics.ended(rec)
	s.publish("session.ended", rec)
	s.log.Debug("session has ended", "session", ss.id, "flow", ss.flow, "how", ss.how)
}

// removeRules removes the session's rules from the switches.
func (s *endings) removeRules(ctx context.Context, ss *session) {
	forBothRoles(func(r agentapi.Role) { s.removeSide(ctx, ss, r) })
	s.pairs.release(ss)
}

// removeSide removes the rules of one side.
func (s *endings) removeSide(ctx context.Context, ss *session, r agentapi.Role) {
	if err := s.rules.Remove(ctx, ss.key(r)); err != nil {
		s.log.Warn("rules could not be removed", "session", ss.id, "end", r, "error", err)
	}
}

// forBothRoles calls f for both roles concurrently.
func forBothRoles(f func(agentapi.Role)) { tasks.Each(roles[:], len(roles), f) }

// endSessionsOf ends the sessions that the lost agent a carried together with the agent with, or
// all sessions of a if with is nil.
func (s *endings) endSessionsOf(a, with *agent, cause error) {
	lost := s.sessions.of(a, with)
	if len(lost) > 0 {
		s.log.Warn("sessions end with their agent", "agent", a.Name, "sessions", len(lost), "error", cause)
	}
	for _, ss := range lost {
		s.terminate(ss, "agent lost: "+a.Name, a)
	}
}

// terminate ends a session: both agents reset their own connections, and the controller notifies
// both end hosts. It does not wait for the agent lost, which is nil if no agent was lost.
func (s *endings) terminate(ss *session, how string, lost *agent) {
	s.mu.Lock()
	mine := ss.state == StateLive
	if mine {
		ss.enter(StateResetting)
		ss.how = how
	}
	s.mu.Unlock()
	if !mine {
		return
	}
	s.start(func(ctx context.Context) {
		forBothRoles(func(r agentapi.Role) {
			if a := ss.agent(r); a == lost {
				s.start(func(ctx context.Context) { s.abortAgent(ctx, a, ss.id) })
			} else {
				s.abortAgent(ctx, a, ss.id)
			}
			// An agent resets its connection only once, as soon as it loses its peer. If that reset
			// is lost, for example because its switch is just being written, the end host would
			// wait forever.
			s.resets.notify(ctx, ss, r)
		})
		s.end(ctx, ss)
	})
}

// abortAgent tells an agent to reset its connection of a session, and reports whether it could. If
// it could not, the agent is told once it is reachable again, so that it does not wait for its
// peer.
func (s *endings) abortAgent(ctx context.Context, a *agent, id agentapi.SessionID) bool {
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	err := a.Client.Abort(ctx, id)
	if err == nil || control.CodeOf(err) == control.CodeNotFound {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pendingAborts[a]) < maxPendingAborts {
		s.pendingAborts[a] = append(s.pendingAborts[a], id)
	}
	return false
}

// sendPendingAborts sends the aborts that an agent missed while it was unreachable.
func (s *endings) sendPendingAborts(ctx context.Context, a *agent) {
	s.mu.Lock()
	ids := s.pendingAborts[a]
	delete(s.pendingAborts, a)
	s.mu.Unlock()
	for _, id := range ids {
		s.abortAgent(ctx, a, id)
	}
}

// endIfHostLeft ends a session whose mobile end host has left: no service places the host any more,
// or its borders no longer include the switch of its agent. Segments from either end would then be
// meaningless to the other end. If the host has not been seen since the start, it may still appear,
// and its session stays.
func (s *endings) endIfHostLeft(ss *session) {
	for _, r := range roles {
		if s.hasLeft(ss, r) {
			s.log.Info("a session ends with its end host's stay", "session", ss.id, "end", ss.endAddr(r))
			s.terminate(ss, fmt.Sprintf("the %s has left", r), nil)
		}
	}
}

func (s *endings) hasLeft(ss *session, r agentapi.Role) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	side := ss.Layout.side(r)
	if !side.isMobile() {
		return false
	}
	a := s.anchorOf(ss.endAddr(r))
	if a != nil {
		if _, ok := a.Border(side.agentAt().Switch); ok {
			ss.anchored[r] = true
			return false
		}
	}
	return a != nil || ss.anchored[r]
}

// listTimeout bounds how long an agent may take to list its sessions.
const listTimeout = 5 * time.Second

// agentEvent handles an event of an agent, which contains counters and ended sessions. before is
// passed to agentDone.
func (s *endings) agentEvent(a *agent, e agentapi.Event, before bool) {
	now := time.Now()
	s.mu.Lock()
	for _, l := range e.Live {
		if ss := s.sessions.byID[l.ID]; ss != nil && ss.agent(l.Role) == a {
			ss.recordCounters(l.Role, l.Counters, now)
			if l.Role == agentapi.RoleClient && (l.Phase == agentapi.PhaseRunning || l.Phase == agentapi.PhaseClosing) {
				s.sessions.leaveHalfOpen(ss)
			}
		}
	}
	s.mu.Unlock()
	for _, r := range e.Ended {
		s.agentDone(r, before)
	}
}

// findMissed ends the sessions that an agent no longer has, although it has not reported their end.
// An agent remembers a limited number of ends, and the controller may have been unable to receive
// its events for a while.
func (s *endings) findMissed(ctx context.Context, a *agent) {
	type half struct {
		id   agentapi.SessionID
		role agentapi.Role
	}
	unknown := map[half]agentapi.Counters{}
	s.mu.Lock()
	for id, ss := range s.sessions.byID {
		for _, r := range roles {
			if _, ok := ss.ended[r]; !ok && ss.state == StateLive && ss.agent(r) == a {
				unknown[half{id, r}] = ss.last[r]
			}
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := a.Client.Sessions(ctx)
	if err != nil {
		s.log.Warn("agent does not say which sessions it carries", "agent", a.Name, "error", err)
		return
	}
	for _, x := range list {
		delete(unknown, half{x.ID, x.Role})
	}
	for h, last := range unknown {
		s.mu.Lock()
		ss := s.sessions.byID[h.id]
		reported := ss == nil || ss.ended[h.role].Reason != ""
		s.mu.Unlock()
		if reported {
			continue
		}
		s.agentDone(agentapi.SessionRecord{
			Reason: agentapi.ReasonClosed, Detail: "how is not known",
			Session: agentapi.Session{ID: h.id, Role: h.role, Counters: last},
		}, false)
	}
}
