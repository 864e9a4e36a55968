package sos

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// Sessions continue without a controller, and end without one. Their agents remember the
// latest that have ended and report them to the next controller in their first event. Those
// that no controller has archived are added to the history.

const (
	// orphanWait is how long the second agent may take to report an end.
	orphanWait = 3 * time.Second
	// maxOrphans bounds the sessions that wait for such a report.
	maxOrphans = 1 << 14
)

// orphan is a session that has ended at its agents and that this controller has not set up.
type orphan struct {
	since time.Time
	ended map[agentapi.Role]agentapi.SessionRecord
}

// addOrphan records an agent's report of such a session's end. The lock is held.
func (s *history) addOrphan(r agentapi.SessionRecord) {
	o := s.orphans[r.ID]
	if o == nil {
		if len(s.orphans) >= maxOrphans {
			return
		}
		o = &orphan{since: time.Now(), ended: map[agentapi.Role]agentapi.SessionRecord{}}
		s.orphans[r.ID] = o
	}
	o.ended[r.Role] = r
}

// forgetOrphan removes what is known of a session that is added to the history once it has
// been cleared away. The lock is held.
func (s *history) forgetOrphan(id agentapi.SessionID) {
	delete(s.orphans, id)
	s.storedSessions = slices.DeleteFunc(s.storedSessions, func(r storedSession) bool {
		if r.id == id {
			s.endedKeys = append(s.endedKeys, id)
		}
		return r.id == id
	})
}

// archiveOrphans moves sessions that ended without a controller to the history.
func (s *history) archiveOrphans() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running || len(s.orphans)+len(s.storedSessions) == 0 {
		return // until the start is over, the sessions may still be taken over
	}
	known := s.known()
	var found []Record
	if time.Since(s.began) > orphanWait {
		found = s.lostSessions(known)
	}
	for id, o := range s.orphans {
		if len(o.ended) < 2 && time.Since(o.since) < orphanWait {
			continue
		}
		delete(s.orphans, id)
		if r, ok := o.record(); ok && !known[r.ID] && !s.predatesHistory(*r.Ended) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b Record) int { return a.Ended.Compare(*b.Ended) })
	for _, r := range found {
		s.carried(r)
	}
	if len(found) > 0 {
		s.log.Info("sessions have ended without a controller", "sessions", len(found))
	}
}

// predatesHistory reports whether a session that ended at the given time is older than the
// history reaches back: whether it was ever in the history is then not known.
func (s *history) predatesHistory(ended time.Time) bool {
	if len(s.records) == 0 || len(s.records) < s.config.History {
		return s.config.History == 0
	}
	oldest := s.records[0].Ended
	return oldest != nil && !ended.After(*oldest)
}

// record returns a record of the session from what its agents kept, and reports whether
// there is one. There is none if the session was never established: its client was then not
// released to its agent.
func (o *orphan) record() (Record, bool) {
	var about sessionContext
	var id agentapi.SessionID
	var over time.Time
	carried := false
	for role, r := range o.ended {
		begun := r.Phase == agentapi.PhaseRunning || r.Phase == agentapi.PhaseClosing
		var ok bool
		if about, ok = readContext(r.Context); !ok || role == agentapi.RoleClient && !begun {
			return Record{}, false
		}
		carried, id = carried || begun, r.ID
		if r.Ended.After(over) {
			over = r.Ended
		}
	}
	if !carried {
		return Record{}, false
	}
	ss := newSession(id, about)
	ss.state, ss.ended, ss.how = StateEnded, o.ended, describeEnd(o.ended)+"; told by its agents afterwards"
	for role, r := range o.ended {
		ss.last[role] = r.Counters
	}
	rec := ss.record()
	rec.Ended, rec.Took = &over, agentapi.Duration(max(over.Sub(about.Started), 0))
	rec.BitsPerSecond = bitsPerSecond(rec.BytesUp+rec.BytesDown, rec.Took)
	return rec, true
}
