package plugin

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// otherEnd is how long the second agent may take to end a session after the first;
// then it is told to, unless the first has closed it in order.
const otherEnd = 3 * time.Second

// established makes a set-up session a live one.
func (s *Service) established(ss *session, total agentapi.Duration) {
	s.mu.Lock()
	s.admitted(ss)
	ss.steps.Total = total
	ss.enter(StateLive)
	steps, rec := ss.steps, s.recordOf(ss)
	ended, news := len(ss.ended) > 0, s.carriesAnew(ss) || ss.behind(s.treatments.Epoch())
	s.mu.Unlock()
	if news {
		s.wake()
	}
	s.metrics.established(steps)
	s.publish("session.established", rec)
	s.log.Debug("session is up", "session", ss.id, "flow", ss.flow, "setup", steps.Total)
	if ended {
		s.windUp(ss)
	}
}

// notEstablished records a session that never was one.
func (s *Service) notEstablished(ss *session, err error) {
	s.mu.Lock()
	s.forget(ss)
	ss.release()
	s.opened(ss)
	ss.enter(StateEnded)
	ss.how = notEstablished + err.Error()
	s.history.add(s.recordOf(ss), s.config.History)
	now, why := time.Now(), reasonOf(err)
	s.directs.add(why, err.Error(), now)
	told := s.talk.may(now)
	s.mu.Unlock()
	s.metrics.failed.WithLabelValues(string(why)).Inc()
	if !told {
		return
	}
	s.publish("session.direct", map[string]any{"session": ss.id, "client": ss.flow.client, "server": ss.flow.server, "reason": why, "why": err.Error()})
	s.log.Info("connection goes directly", "flow", ss.flow, "reason", why, "why", err)
}

// maxTalk is how many connections that go directly are told of in a second; in
// a flood the metrics have to do.
const maxTalk = 20

// talk counts what has been told in the present second.
type talk struct {
	second int64
	n      int
}

func (t *talk) may(now time.Time) bool {
	if sec := now.Unix(); sec != t.second {
		*t = talk{second: sec}
	}
	t.n++
	return t.n <= maxTalk
}

// agentDone takes in that an agent is done with a session. It may have been since
// before we were started.
func (s *Service) agentDone(r agentapi.SessionRecord, before bool) {
	s.mu.Lock()
	ss := s.byID[r.ID]
	if ss == nil {
		if before || !s.running {
			s.noteOrphan(r)
		}
		s.mu.Unlock()
		return
	}
	if _, known := ss.ended[r.Role]; !known && len(ss.ended) == 1 {
		close(ss.bothEnded)
	}
	ss.ended[r.Role] = r
	s.opened(ss)
	ss.progress(r.Role, r.Counters, time.Now())
	live, first := ss.state == StateLive, len(ss.ended) == 1 // the second is awaited already
	s.mu.Unlock()
	if live && first {
		s.windUp(ss)
	}
}

// windUp waits for the second agent to be done, and then ends the session.
func (s *Service) windUp(ss *session) {
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
			bothRoles(func(_ int, r agentapi.Role) error { s.resetEnd(ctx, ss, r); return nil })
		}
		if tasks.Sleep(ctx, toTick(time.Now(), s.opts.Linger)) == nil {
			s.end(ctx, ss)
		}
	})
}

// awaitSecond waits for the second agent to be done as well. After an orderly end of
// the first it has all the time that its end host takes: what that has not read yet
// is still being carried. Otherwise it is told to end.
func (s *Service) awaitSecond(ctx context.Context, ss *session) {
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

// orderly says whether both agents are sure that their end hosts know of the end.
func orderly(ended map[agentapi.Role]agentapi.SessionRecord) bool {
	for _, r := range bothRole {
		switch ended[r].Reason {
		case "", agentapi.ReasonPeerLost, agentapi.ReasonFailed:
			return false
		}
	}
	return true
}

// await waits for the channel to be closed, but not for ever.
func await(ctx context.Context, done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// endTick is when rules of ended sessions go: those of many together. Each change
// of its tables makes Open vSwitch look through all that it has cached.
const endTick = 50 * time.Millisecond

// toTick is how long to wait for d, and then for the next tick.
func toTick(now time.Time, d time.Duration) time.Duration {
	at := now.Add(d)
	return at.Truncate(endTick).Add(endTick).Sub(now)
}

// ending says how a session ended, from what its agents say.
func ending(ended map[agentapi.Role]agentapi.SessionRecord) string {
	client, server := ended[agentapi.RoleClient], ended[agentapi.RoleServer]
	pick := func(r agentapi.SessionRecord) string {
		if r.Detail != "" {
			return string(r.Reason) + ": " + r.Detail
		}
		return string(r.Reason)
	}
	switch {
	case client.Reason == server.Reason, server.Reason == "":
		return pick(client)
	case client.Reason == "":
		return pick(server)
	}
	// One agent knows the cause, the other only that its peer gave up.
	for _, r := range []agentapi.SessionRecord{client, server} {
		switch r.Reason {
		case agentapi.ReasonPeerReset, agentapi.ReasonPeerLost, agentapi.ReasonClosed, agentapi.ReasonAborted:
		default:
			return pick(r)
		}
	}
	return pick(client) + "; server's agent: " + pick(server)
}

// end removes the rules of a session and moves it to the history.
func (s *Service) end(ctx context.Context, ss *session) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ss.changing.Lock()
	s.removeRules(ctx, ss)
	ss.changing.Unlock()
	s.mu.Lock()
	if s.sessions[ss.flow] == ss {
		delete(s.sessions, ss.flow)
	}
	delete(s.byID, ss.id)
	s.forgetLive(ss)
	s.forgetAgentFlows(ss)
	ss.release()
	s.opened(ss)
	ss.enter(StateEnded)
	close(ss.over)
	if ss.carried() {
		s.passed.add(opening{ss.flow, ss.isn}, time.Now())
	}
	rec := s.recordOf(ss)
	s.history.add(rec, s.config.History)
	s.mu.Unlock()
	s.metrics.ended(rec)
	s.publish("session.ended", rec)
	s.log.Debug("session has ended", "session", ss.id, "flow", ss.flow, "how", ss.how)
}
