package plugin

import (
	"encoding/json"
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
func (s *Service) noteOrphan(r agentapi.SessionRecord) {
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

// archiveOrphans moves what has ended without a controller to the history.
func (s *Service) archiveOrphans() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running || len(s.orphans)+len(s.remembered) == 0 {
		return // before the start is over, it may yet be taken over
	}
	known := s.history.known()
	var found []Record
	if time.Since(s.began) > orphanWait {
		found = s.recall(known)
	}
	for id, o := range s.orphans {
		if len(o.ended) < 2 && time.Since(o.since) < orphanWait {
			continue
		}
		delete(s.orphans, id)
		if r, ok := s.recordOfOrphan(o); ok && !known[r.ID] && !s.history.beyond(*r.Ended, s.config.History) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b Record) int { return a.Ended.Compare(*b.Ended) })
	for i := range found {
		s.history.add(found[i], s.config.History)
		s.metrics.up.Inc()
		s.metrics.ended(found[i])
	}
	if len(found) > 0 {
		s.log.Info("sessions have ended without a controller", "sessions", len(found))
	}
}

// beyond says whether what ended then is older than the history is long: if it was
// ever in the history, nothing tells any more.
func (h *history) beyond(ended time.Time, limit int) bool {
	if len(h.records) == 0 || len(h.records) < limit {
		return limit == 0
	}
	oldest := h.records[0].Ended
	return oldest != nil && !ended.After(*oldest)
}

// recordOfOrphan describes a session from what its agents kept of it, unless it
// never was one: then its client was not released to its agent. The lock is held.
func (s *Service) recordOfOrphan(o *orphan) (Record, bool) {
	var about sessionContext
	ss := &session{state: StateEnded, last: map[agentapi.Role]agentapi.Counters{}, ended: o.ended}
	var over time.Time
	carried := false
	for _, role := range bothRole {
		r, told := o.ended[role]
		if !told {
			continue
		}
		begun := r.Phase == agentapi.PhaseRunning || r.Phase == agentapi.PhaseClosing
		if role == agentapi.RoleClient && !begun || len(r.Context) > maxContext || json.Unmarshal(r.Context, &about) != nil {
			return Record{}, false
		}
		carried = carried || begun
		ss.id, ss.flow, ss.last[role] = r.ID, flow{r.Client, r.Server}, r.Counters
		if r.Ended.After(over) {
			over = r.Ended
		}
	}
	if !carried {
		return Record{}, false
	}
	ss.describe(about)
	ss.how = ending(o.ended) + "; told by its agents afterwards"
	rec := s.recordOf(ss)
	rec.ClientAgent, rec.ServerAgent = about.Client, about.Server
	rec.Ended, rec.Took = &over, agentapi.Duration(max(over.Sub(about.Started), 0))
	rec.BitsPerSecond = bitsPerSecond(rec.BytesUp+rec.BytesDown, rec.Took)
	return rec, true
}
