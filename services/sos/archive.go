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
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/store"
)

// The history is kept in the store in pages. Each page is written once and holds,
// compressed, the sessions that ended within one second. If a controller is killed before
// it has written a page, its agents report these sessions to the next controller.
const (
	keyHistory = Name + "/history/"
	keyTotals  = Name + "/totals"
	// saveEvery is how often a page is written.
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

// notEstablished begins the description of a session whose set-up failed.
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

// history keeps the records of ended sessions, the oldest first, and stores them. The
// service's lock guards all of it.
type history struct {
	*core
	sessions *sessions
	records  []Record
	totals   Totals
	added    uint64 // records added since the start
	saved    uint64 // how many of them need not be stored any more
	pages    []page
	// orphans holds the sessions of which agents have reported only the end.
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

// finish adds a session that has ended, and returns its record. The lock is held.
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

// carried adds a session that agents have carried to its end and that has not been counted
// yet. The lock is held.
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

// run stores ended sessions until ctx ends, and then the remaining ones.
func (s *history) run(ctx context.Context) {
	for tasks.Sleep(ctx, saveEvery) == nil {
		s.archiveOrphans()
		s.save(ctx)
		s.saveLive(ctx)
	}
	s.save(context.WithoutCancel(ctx))
	s.saveLive(context.WithoutCancel(ctx))
}

// save stores the records that are not in the store yet, and deletes the pages that the
// configured length of the history no longer needs. What cannot be written now is written
// with the next page.
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

// outdated removes the oldest pages that the history does not need from the list, and
// returns them.
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
	// Pages in the order of their keys are in the order of time.
	p := page{fmt.Sprintf("%s%016x-%.8s", keyHistory, time.Now().UnixNano(), agentapi.NewSessionID()), len(batch)}
	return p, s.store.Apply(ctx, store.OpPut(p.key, b.Bytes()), store.OpPut(keyTotals, sum))
}

// load reads what earlier controllers have stored. A page that cannot be read loses only
// its own records.
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
