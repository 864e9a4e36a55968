package plugin

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/service/control"
	"github.com/sluice-net/sluice/sos/agentapi"
)

const (
	// otherEnd is how long the second agent may take to end a session after the first;
	// then it is told to, unless the first has closed it in order.
	otherEnd = 3 * time.Second
	// maxUntold bounds the sessions that an agent is told of when it is back.
	maxUntold = 4096
)

// endings takes sessions from the first word of their end to the history.
type endings struct {
	*core
	sessions *sessions
	history  *history
	pairs    *pairs
	resets   *resets
	// untold are sessions that agents could not be told the end of, under the lock.
	untold map[*agent][]agentapi.SessionID
}

// agentDone takes in that an agent is done with a session. It may have been since
// before we were started.
func (s *endings) agentDone(r agentapi.SessionRecord, before bool) {
	s.mu.Lock()
	ss := s.sessions.byID[r.ID]
	if ss == nil {
		if before || !s.running {
			s.history.noteOrphan(r)
		}
		s.mu.Unlock()
		return
	}
	if _, known := ss.ended[r.Role]; !known && len(ss.ended) == 1 {
		close(ss.bothEnded)
	}
	ss.ended[r.Role] = r
	s.sessions.opened(ss)
	ss.progress(r.Role, r.Counters, time.Now())
	live, first := ss.state == StateLive, len(ss.ended) == 1 // the second is awaited already
	s.mu.Unlock()
	if live && first {
		s.windUp(ss)
	}
}

// windUp waits for the second agent to be done, and then ends the session.
func (s *endings) windUp(ss *session) {
	s.start(func(ctx context.Context) {
		s.awaitSecond(ctx, ss)
		s.mu.Lock()
		mine, orderly := ss.state == StateLive, orderly(ss.ended)
		if mine {
			if orderly {
				ss.enter(StateEnding)
			} else {
				ss.enter(StateResetting)
			}
			ss.how = ending(ss.ended)
		}
		s.mu.Unlock()
		if !mine {
			return
		}
		if !orderly {
			// An agent that lost its peer may itself be cut off from its end
			// host, which would then wait for ever.
			bothRoles(func(r agentapi.Role) { s.resets.end(ctx, ss, r) })
		}
		if tasks.Sleep(ctx, toTick(time.Now(), s.opts.Linger)) == nil {
			s.end(ctx, ss)
		}
	})
}

// awaitSecond waits for the second agent to be done as well. After an orderly end of
// the first it has all the time that its end host takes: what that has not read yet
// is still being carried. Otherwise it is told to end.
func (s *endings) awaitSecond(ctx context.Context, ss *session) {
	for !await(ctx, ss.bothEnded, otherEnd) && ctx.Err() == nil {
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
			await(ctx, ss.bothEnded, otherEnd)
			return
		}
	}
}

// await waits for the channel to be closed, but not for ever.
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

// endTick is when rules of ended sessions go: those of many together. Each change
// of its tables makes Open vSwitch look through all that it has cached.
const endTick = 50 * time.Millisecond

// toTick is how long to wait for d, and then for the next tick.
func toTick(now time.Time, d time.Duration) time.Duration {
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
	if ss.carried() {
		s.sessions.passed.add(opening{ss.flow, ss.isn}, time.Now())
	}
	rec := s.history.finish(ss)
	s.mu.Unlock()
	s.metrics.ended(rec)
	s.publish("session.ended", rec)
	s.log.Debug("session has ended", "session", ss.id, "flow", ss.flow, "how", ss.how)
}

// removeRules removes the session's rules from the switches.
func (s *endings) removeRules(ctx context.Context, ss *session) {
	bothRoles(func(r agentapi.Role) { s.removeSide(ctx, ss, r) })
	s.pairs.drop(ss)
}

// removeSide removes those of one side.
func (s *endings) removeSide(ctx context.Context, ss *session, r agentapi.Role) {
	if err := s.rules.Remove(ctx, ss.key(r)); err != nil {
		s.log.Warn("rules could not be removed", "session", ss.id, "end", r, "error", err)
	}
}

// bothRoles does something at both ends at once.
func bothRoles(f func(agentapi.Role)) { tasks.Each(bothRole[:], len(bothRole), f) }

// lose ends the sessions of an agent that is gone, with another; nil: all.
func (s *endings) lose(a, with *agent, cause error) {
	lost := s.sessions.of(a, with)
	if len(lost) > 0 {
		s.log.Warn("sessions end with their agent", "agent", a.Name, "sessions", len(lost), "error", cause)
	}
	for _, ss := range lost {
		s.breakOff(ss, "agent lost: "+a.Name, a)
	}
}

// breakOff ends a session: the agents that are there reset their own ends, and the
// controller has both end hosts know.
func (s *endings) breakOff(ss *session, how string, lost *agent) {
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
		bothRoles(func(r agentapi.Role) {
			if a := ss.agent(r); a == lost {
				s.start(func(ctx context.Context) { s.tell(ctx, a, ss.id) })
			} else {
				s.tell(ctx, a, ss.id)
			}
			// An agent resets its end once, as soon as it loses its peer: if that does not get
			// there, as when its switch is just being written, the end host would wait for ever.
			s.resets.end(ctx, ss, r)
		})
		s.end(ctx, ss)
	})
}

// tell has an agent reset its end of a session. It reports false when the agent
// cannot be told; it then is when it is back, lest it waits for its peer.
func (s *endings) tell(ctx context.Context, a *agent, id agentapi.SessionID) bool {
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	err := a.Client.Abort(ctx, id)
	if err == nil || control.CodeOf(err) == control.CodeNotFound {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.untold[a]) < maxUntold {
		s.untold[a] = append(s.untold[a], id)
	}
	return false
}

// tellLate tells an agent that is back what it could not be told.
func (s *endings) tellLate(ctx context.Context, a *agent) {
	s.mu.Lock()
	untold := s.untold[a]
	delete(s.untold, a)
	s.mu.Unlock()
	for _, id := range untold {
		s.tell(ctx, a, id)
	}
}

// endIfLeft ends a session whose end host has left: it is led by nobody any more, or by
// other borders than its agent stands at. What either end still sends would mean nothing
// to the other. One that has not been seen since the start may yet be.
func (s *endings) endIfLeft(ss *session) {
	for _, r := range bothRole {
		if s.left(ss, r) {
			s.log.Info("a session ends with its end host's stay", "session", ss.id, "end", ss.endOf(r))
			s.breakOff(ss, fmt.Sprintf("the %s has left", r), nil)
		}
	}
}

func (s *endings) left(ss *session, r agentapi.Role) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	side := ss.Layout.side(r)
	if !side.moves() {
		return false
	}
	a := s.anchorOf(ss.endOf(r))
	if a != nil {
		if _, here := a.Border(side.agentAt().Switch); here {
			ss.anchored[r] = true
			return false
		}
	}
	return a != nil || ss.anchored[r]
}
