package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/sos/agentapi"
	"github.com/sluice-net/sluice/store"
)

// What agents know of a session goes with their processes. So that a session of which
// both have gone while no controller ran is not missing in the history, the store has
// those that have lasted for a while.

const (
	keyLive = Name + "/live/"
	// rememberAfter is how long a session has lasted when it is stored: most are over
	// before, and cost the store nothing.
	rememberAfter = 10 * time.Second
	// maxRemembered bounds what is stored or deleted at once.
	maxRemembered = 64
)

// remembered is a session of an earlier controller, from the store.
type remembered struct {
	id    agentapi.SessionID
	about sessionContext
}

// loadLive reads the sessions that lasted when an earlier controller ended.
func (s *history) loadLive(ctx context.Context) ([]remembered, error) {
	entries, err := s.store.List(ctx, keyLive)
	if err != nil {
		return nil, fmt.Errorf("read the live sessions: %w", err)
	}
	var all []remembered
	for _, e := range entries {
		id, err := agentapi.ParseSessionID(e.Key[len(keyLive):])
		r := remembered{id: id}
		if err == nil {
			err = json.Unmarshal(e.Value, &r.about)
		}
		if err != nil {
			s.log.Warn("a stored session cannot be read", "key", e.Key, "error", err)
			continue
		}
		all = append(all, r)
	}
	return all, nil
}

// saveLive stores the sessions that have lasted for a while, and deletes those that
// have ended since.
func (s *history) saveLive(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for ctx.Err() == nil {
		s.mu.Lock()
		over := s.outlived[:min(len(s.outlived), maxRemembered)]
		var ops []store.Op
		for _, id := range over {
			ops = append(ops, store.OpDelete(keyLive+id.String()))
		}
		var lasting []*session
		for id, ss := range s.sessions.byID {
			if len(ops) == maxRemembered {
				break
			}
			if ss.state != StateLive || ss.stored || time.Since(ss.Started) < rememberAfter {
				continue
			}
			if b, err := json.Marshal(ss.sessionContext); err == nil { // it was marshalled for its agents as well
				ops, lasting = append(ops, store.OpPut(keyLive+id.String(), b)), append(lasting, ss)
				ss.stored = true // or it is not deleted if it ends meanwhile
			}
		}
		s.mu.Unlock()
		if len(ops) == 0 {
			return
		}
		err := s.store.Apply(ctx, ops...)
		s.mu.Lock()
		if err == nil {
			s.outlived = s.outlived[len(over):]
		} else {
			for _, ss := range lasting {
				ss.stored = false
			}
		}
		s.mu.Unlock()
		if err != nil {
			s.log.Warn("live sessions are not stored; it will be tried again", "error", err)
			return
		}
	}
}

// recall compares the sessions that an earlier controller has stored with what agents
// have told: those of which nobody knows go to the history. The lock is held.
func (s *history) recall(known map[string]bool) (gone []Record) {
	for _, r := range s.remembered {
		if ss := s.sessions.byID[r.id]; ss != nil {
			ss.stored = true
			continue
		}
		s.outlived = append(s.outlived, r.id)
		if s.orphans[r.id] != nil || known[r.id.String()] {
			continue
		}
		ss := newSession(r.id, r.about)
		ss.state, ss.how = StateEnded, "not known to its agents any more after a restart of the controller"
		gone = append(gone, ss.record())
	}
	s.remembered = nil
	return gone
}
