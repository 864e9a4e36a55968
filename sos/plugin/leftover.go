package plugin

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// leftOver describes a session that cannot be taken over. Until it is cleared away
// its connection is known: the rules by which an end is reset would catch a new
// connection's packets, so its client has to wait for their removal.
func (s *Service) leftOver(id agentapi.SessionID, f *found) *session {
	ss := &session{
		id: id, started: time.Now(), how: "after a restart of the controller its agents did not both know it",
		last: map[agentapi.Role]agentapi.Counters{}, ended: map[agentapi.Role]agentapi.SessionRecord{},
		over: make(chan struct{}),
	}
	ss.enter(StateResetting)
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
		for deadline := time.Now().Add(s.opts.Settle); !s.net.Topology().Has(first) && time.Now().Before(deadline); {
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
	close(ss.over)
	if s.sessions[ss.flow] == ss {
		delete(s.sessions, ss.flow)
	}
	if !f.half() {
		return
	}
	ss.enter(StateEnded)
	rec := s.recordOf(ss)
	rec.ClientAgent, rec.ServerAgent = f.ctx.Client, f.ctx.Server
	s.history.add(rec, s.config.History)
	s.metrics.up.Inc()
	s.metrics.ended(rec)
}
