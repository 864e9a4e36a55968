package sos

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/store"
)

// What agents know of a session is lost with their processes. If both processes end while
// no controller runs, the session would be missing from the history. So the store keeps the
// sessions that have lasted for a while.

const (
	keyLive = Name + "/live/"
	// rememberAfter is the age at which a session is stored. Most sessions are over before
	// that, and cost the store nothing.
	rememberAfter = 10 * time.Second
	// maxRemembered bounds the sessions that are stored or deleted in one operation.
	maxRemembered = 64
)

// storedSession is a session of an earlier controller, from the store.
type storedSession struct {
	id    agentapi.SessionID
	about sessionContext
}

// loadLive reads the sessions that were live when an earlier controller ended.
func (s *history) loadLive(ctx context.Context) ([]storedSession, error) {
	entries, err := s.store.List(ctx, keyLive)
	if err != nil {
		return nil, fmt.Errorf("read the live sessions: %w", err)
	}
	var all []storedSession
	for _, e := range entries {
		id, err := agentapi.ParseSessionID(e.Key[len(keyLive):])
		r := storedSession{id: id}
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

// saveLive stores the sessions that have lasted for a while, and deletes those that have
// ended since.
func (s *history) saveLive(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for ctx.Err() == nil {
		s.mu.Lock()
		over := s.endedKeys[:min(len(s.endedKeys), maxRemembered)]
		var ops []store.Op
		for _, id := range over {
			ops = append(ops, store.OpDelete(keyLive+id.String()))
		}
		var lasting []*session
		for id, ss := range s.sessions.byID {
			if len(ops) == maxRemembered {
				break
			}
			if ss.state != StateLive || ss.inStore || time.Since(ss.Started) < rememberAfter {
				continue
			}
			if b, err := json.Marshal(ss.sessionContext); err == nil { // marshalling it for its agents has succeeded before
				ops, lasting = append(ops, store.OpPut(keyLive+id.String(), b)), append(lasting, ss)
				ss.inStore = true // set before the write, so that it is deleted if the session ends meanwhile
			}
		}
		s.mu.Unlock()
		if len(ops) == 0 {
			return
		}
		err := s.store.Apply(ctx, ops...)
		s.mu.Lock()
		if err == nil {
			s.endedKeys = s.endedKeys[len(over):]
		} else {
			for _, ss := range lasting {
				ss.inStore = false
			}
		}
		s.mu.Unlock()
		if err != nil {
			s.log.Warn("live sessions are not stored; it will be tried again", "error", err)
			return
		}
	}
}

// lostSessions compares the sessions that an earlier controller has stored with what agents
// have reported, and returns records of those that no agent knows. The lock is held.
func (s *history) lostSessions(known map[string]bool) (gone []Record) {
	for _, r := range s.storedSessions {
		if ss := s.sessions.byID[r.id]; ss != nil {
			ss.inStore = true
			continue
		}
		s.endedKeys = append(s.endedKeys, r.id)
		if s.orphans[r.id] != nil || known[r.id.String()] {
			continue
		}
		ss := newSession(r.id, r.about)
		ss.state, ss.how = StateEnded, "not known to its agents any more after a restart of the controller"
		gone = append(gone, ss.record())
	}
	s.storedSessions = nil
	return gone
}
