package sos

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/store"
)

// The history is kept in the store in pages. Each page is written once and holds,
// compressed, the sessions that ended within one second. If a controller is killed before
// it has written a page, its agents report these sessions to the next controller.
const (
	keyHistory = Name + "/history/"
	keyTotals  = Name + "/totals"
	// saveEvery is the interval at which pages are written.
	saveEvery = time.Second
	// maxPage bounds the number of records in a page, and so the size of a value in the
	// store.
	maxPage = 256
	// maxPageBytes bounds the size of a page after decompression.
	maxPageBytes = 64 << 20
)

// Totals counts the sessions that have ended since the service was first started, over all
// restarts of the controller.
type Totals struct {
	Carried   uint64 `json:"carried" doc:"Sessions carried by agents to their end"`
	Direct    uint64 `json:"direct" doc:"Whitelisted connections that went directly because their set-up failed"`
	BytesUp   uint64 `json:"bytes_up" doc:"Payload of ended sessions from clients"`
	BytesDown uint64 `json:"bytes_down" doc:"The same to clients"`
}

// notEstablished is the beginning of the description of a session whose set-up failed.
const notEstablished = "not established: "

func (t *Totals) count(r *Record) {
	if strings.HasPrefix(r.How, notEstablished) {
		t.Direct++
		return
	}
	t.Carried++
	t.BytesUp += r.BytesUp
	t.BytesDown += r.BytesDown
}

// history keeps the records of ended sessions, the oldest first, and stores them. The service's
// lock guards its fields.
type history struct {
	*core
	sessions *sessions
	records  []Record
	totals   Totals
	added    uint64 // records added since the start
	saved    uint64 // how many of the added records are stored, or need not be
	pages    []page
	// orphans holds the sessions that this controller knows only from agents' reports of their end.
	orphans map[agentapi.SessionID]*orphan
	// storedSessions holds the sessions that were live when an earlier controller ended.
	// endedKeys lists the stored sessions that have ended since.
	storedSessions []storedSession
	endedKeys      []agentapi.SessionID
}

// page is a part of the history in the store.
type page struct {
	key     string
	records int
}

// finish adds an ended session to the history, and returns its record. The lock is held.
func (s *history) finish(ss *session) Record {
	if ss.inStore {
		s.endedKeys = append(s.endedKeys, ss.id)
	}
	rec := ss.record()
	s.add(rec)
	return rec
}

func (s *history) add(r Record) {
	s.totals.count(&r)
	s.records = append(s.records, r)
	s.added++
	s.trim()
}

// carried adds the record of a session that agents have carried to its end and that has not been
// counted yet. The lock is held.
func (s *history) carried(r Record) {
	s.add(r)
	s.metrics.up.Inc()
	s.metrics.ended(r)
}

// known returns the set of ids of the records.
func (s *history) known() map[string]bool {
	ids := make(map[string]bool, len(s.records))
	for i := range s.records {
		ids[s.records[i].ID] = true
	}
	return ids
}

// unsaved returns the records that are not in the store yet.
func (s *history) unsaved() []Record {
	n := min(s.added-s.saved, uint64(len(s.records)))
	return s.records[uint64(len(s.records))-n:]
}

func (s *history) trim() {
	if over := len(s.records) - s.config.History; over > 0 {
		clear(s.records[:over])
		s.records = s.records[over:]
	}
}

// run stores ended and lasting sessions until ctx ends, and then the remaining ones.
func (s *history) run(ctx context.Context) {
	for tasks.Sleep(ctx, saveEvery) == nil {
		s.archiveOrphans()
		s.save(ctx)
		s.saveLive(ctx)
	}
	s.save(context.WithoutCancel(ctx))
	s.saveLive(context.WithoutCancel(ctx))
}

// save stores the records that are not in the store yet, and deletes the pages that the configured
// length of the history no longer needs. Records that cannot be written now are written with the
// next page.
func (s *history) save(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for {
		s.mu.Lock()
		left := s.unsaved()
		batch, totals := slices.Clone(left[:min(len(left), maxPage)]), s.totals
		until := s.added - uint64(len(left)-len(batch))
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		p, err := s.savePage(ctx, batch, totals)
		if err != nil {
			s.log.Warn("history is not stored; it will be tried again", "records", len(left), "error", err)
			return
		}
		var old []store.Op
		s.mu.Lock()
		s.pages = append(s.pages, p)
		s.saved = until
		for _, p := range s.outdated() {
			old = append(old, store.OpDelete(p.key))
		}
		s.mu.Unlock()
		if len(old) == 0 {
			continue
		}
		if err := s.store.Apply(ctx, old...); err != nil {
			s.log.Warn("old history is not deleted", "error", err)
		}
	}
}

// outdated removes the oldest pages that the history does not need from pages, and returns them.
func (s *history) outdated() []page {
	total := 0
	for _, p := range s.pages {
		total += p.records
	}
	n := 0
	for n < len(s.pages) && total-s.pages[n].records >= s.config.History {
		total -= s.pages[n].records
		n++
	}
	old := s.pages[:n:n]
	s.pages = s.pages[n:]
	return old
}

// savePage stores a page together with the totals that include it.
func (s *history) savePage(ctx context.Context, batch []Record, totals Totals) (page, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	sum, err := json.Marshal(totals)
	if err := errors.Join(err, json.NewEncoder(z).Encode(batch), z.Close()); err != nil {
		return page{}, err
	}
	// Keys sort in the order of time.
	p := page{fmt.Sprintf("%s%016x-%.8s", keyHistory, time.Now().UnixNano(), agentapi.NewSessionID()), len(batch)}
	return p, s.store.Apply(ctx, store.OpPut(p.key, b.Bytes()), store.OpPut(keyTotals, sum))
}

// load reads the history, the totals and the live sessions that earlier controllers have stored. If
// a page cannot be read, only its own records are lost.
func (s *history) load(ctx context.Context) error {
	var totals Totals
	if e, err := s.store.Get(ctx, keyTotals); err == nil {
		if err := json.Unmarshal(e.Value, &totals); err != nil {
			return fmt.Errorf("stored totals: %w", err)
		}
	} else if !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("read the totals: %w", err)
	}
	entries, err := s.store.List(ctx, keyHistory)
	if err != nil {
		return fmt.Errorf("read the history: %w", err)
	}
	live, err := s.loadLive(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		batch, err := readPage(e.Value)
		if err != nil {
			s.log.Warn("a part of the stored history cannot be read", "key", e.Key, "error", err)
		}
		s.records = append(s.records, batch...)
		s.pages = append(s.pages, page{e.Key, len(batch)})
	}
	s.totals, s.storedSessions = totals, live
	s.trim()
	s.metrics.resume(totals)
	return nil
}

func readPage(b []byte) ([]Record, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	var batch []Record
	err = json.NewDecoder(io.LimitReader(z, maxPageBytes)).Decode(&batch)
	return batch, err
}

// Agents lose their knowledge of a session when their processes end. If both processes end while no
// controller runs, the session would be missing from the history. So the store keeps the sessions
// that have lasted for rememberAfter.

const (
	keyLive = Name + "/live/"
	// rememberAfter is the age at which a live session is stored. Most sessions are over before
	// that, and cost the store nothing.
	rememberAfter = 10 * time.Second
	// maxRemembered bounds the sessions that are stored or deleted in one operation.
	maxRemembered = 64
)

// storedSession is a live session that an earlier controller has stored.
type storedSession struct {
	id    agentapi.SessionID
	about sessionContext
}

// loadLive reads the sessions that were live when an earlier controller ended.
func (s *history) loadLive(ctx context.Context) (all []storedSession, err error) {
	records := kit.Records[sessionContext]{Store: s.store, Prefix: keyLive, Plural: "live sessions", Log: s.log}
	err = records.Load(ctx, func(name string, about sessionContext) error {
		id, err := agentapi.ParseSessionID(name)
		if err == nil {
			all = append(all, storedSession{id, about})
		}
		return err
	})
	return all, err
}

// saveLive stores the live sessions that have lasted for rememberAfter, and deletes those that have
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
			if b, err := json.Marshal(ss.sessionContext); err == nil { // marshalling the context for the agents has succeeded before
				ops, lasting = append(ops, store.OpPut(keyLive+id.String(), b)), append(lasting, ss)
				ss.inStore = true // set before the write, so that the entry is deleted if the session ends meanwhile
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

// lostSessions compares the sessions that an earlier controller has stored with the agents' reports
// and the history. It returns records of the sessions that are in neither. known holds the ids in
// the history. The lock is held.
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

// Sessions continue without a controller, and may end without one. Their agents remember the latest
// ended sessions and report them to the next controller in their first event. Sessions that no
// controller has archived are added to the history.

const (
	// orphanWait is how long the second agent may take to report the end of an orphan.
	orphanWait = 3 * time.Second
	// maxOrphans bounds the number of orphans that wait for such a report.
	maxOrphans = 1 << 14
)

// orphan is a session that has ended at its agents and that this controller has not set up.
type orphan struct {
	since time.Time
	ended map[agentapi.Role]agentapi.SessionRecord
}

// addOrphan records an agent's report of an orphan's end. The lock is held.
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

// forgetOrphan removes a session from the orphans and from the stored sessions. The caller clears
// the session away and then adds it to the history itself. The lock is held.
func (s *history) forgetOrphan(id agentapi.SessionID) {
	delete(s.orphans, id)
	s.storedSessions = slices.DeleteFunc(s.storedSessions, func(r storedSession) bool {
		if r.id == id {
			s.endedKeys = append(s.endedKeys, id)
		}
		return r.id == id
	})
}

// archiveOrphans moves sessions that ended while no controller ran to the history.
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

// predatesHistory reports whether a session that ended at the given time is older than the oldest
// record of the history. Whether such a session was in the history before is not known.
func (s *history) predatesHistory(ended time.Time) bool {
	if len(s.records) == 0 || len(s.records) < s.config.History {
		return s.config.History == 0
	}
	oldest := s.records[0].Ended
	return oldest != nil && !ended.After(*oldest)
}

// record returns a record of the session from the agents' reports, and reports whether there is
// one. There is none if the session was never established, because its client's packets were then
// never sent to its agent.
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
