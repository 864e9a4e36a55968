package plugin

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/sos/agentapi"
)

// Sessions go on without a controller, and end without one. Their agents remember
// the latest that have ended, and tell the next controller of them when it first
// hears them: those that nobody has archived belong to the history.

const (
	// orphanWait is how long the second agent may take to tell of an end.
	orphanWait = 3 * time.Second
	// maxOrphans bounds the sessions that wait for that.
	maxOrphans = 1 << 14
)

// orphan is a session that has ended at agents, and that this controller has not
// set up.
type orphan struct {
	since time.Time
	ended map[agentapi.Role]agentapi.SessionRecord
}

// noteOrphan takes in that an agent was done with such a session. The lock is held.
func (s *history) noteOrphan(r agentapi.SessionRecord) {
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

// expect forgets what is known of a session that will be in the history when it has been
// cleared away. The lock is held.
func (s *history) expect(id agentapi.SessionID) {
	delete(s.orphans, id)
	s.remembered = slices.DeleteFunc(s.remembered, func(r remembered) bool {
		if r.id == id {
			s.outlived = append(s.outlived, id)
		}
		return r.id == id
	})
}

// archiveOrphans moves what has ended without a controller to the history.
func (s *history) archiveOrphans() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running || len(s.orphans)+len(s.remembered) == 0 {
		return // before the start is over, it may yet be taken over
	}
	known := s.known()
	var found []Record
	if time.Since(s.began) > orphanWait {
		found = s.recall(known)
	}
	for id, o := range s.orphans {
		if len(o.ended) < 2 && time.Since(o.since) < orphanWait {
			continue
		}
		delete(s.orphans, id)
		if r, ok := o.record(); ok && !known[r.ID] && !s.beyond(*r.Ended) {
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

// beyond says whether what ended then is older than the history is long: if it was
// ever in the history, nothing tells any more.
func (s *history) beyond(ended time.Time) bool {
	if len(s.records) == 0 || len(s.records) < s.config.History {
		return s.config.History == 0
	}
	oldest := s.records[0].Ended
	return oldest != nil && !ended.After(*oldest)
}

// record describes the session from what its agents kept of it, unless it
// never was one: then its client was not released to its agent.
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
	ss.state, ss.ended, ss.how = StateEnded, o.ended, ending(o.ended)+"; told by its agents afterwards"
	for role, r := range o.ended {
		ss.last[role] = r.Counters
	}
	rec := ss.record()
	rec.Ended, rec.Took = &over, agentapi.Duration(max(over.Sub(about.Started), 0))
	rec.BitsPerSecond = bitsPerSecond(rec.BytesUp+rec.BytesDown, rec.Took)
	return rec, true
}
