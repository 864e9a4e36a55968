package plugin

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
	"github.com/sluice-net/sluice/sos/agentapi"
	"github.com/sluice-net/sluice/store"
)

// The history is kept in the store in pages, each written once: what has ended
// within a second, compressed. What a controller that is killed has not written, the
// agents tell the next one.
const (
	keyHistory = Name + "/history/"
	keyTotals  = Name + "/totals"
	// saveEvery is how often a page is written.
	saveEvery = time.Second
	// maxPage bounds the records of a page, and with it a value of the store.
	maxPage = 256
	// maxPageBytes bounds what a page is unpacked to.
	maxPageBytes = 64 << 20
)

// Totals count what has ended since the service was first started, over all
// restarts of the controller.
type Totals struct {
	Carried   uint64 `json:"carried" doc:"Sessions carried by agents to their end"`
	Direct    uint64 `json:"direct" doc:"Whitelisted connections that went directly because their set-up failed"`
	BytesUp   uint64 `json:"bytes_up" doc:"Payload of ended sessions from clients"`
	BytesDown uint64 `json:"bytes_down" doc:"The same to clients"`
}

// notEstablished begins what is told of a session that never was one.
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

// history keeps the records of ended sessions, the oldest first.
type history struct {
	records []Record
	totals  Totals
	added   uint64 // records ever
	saved   uint64 // those of them that need not be stored any more
	pages   []page
}

// page is a part of the history in the store.
type page struct {
	key     string
	records int
}

func (h *history) add(r Record, limit int) {
	h.totals.count(&r)
	h.records = append(h.records, r)
	h.added++
	h.trim(limit)
}

// known are the ids of the records.
func (h *history) known() map[string]bool {
	ids := make(map[string]bool, len(h.records))
	for i := range h.records {
		ids[h.records[i].ID] = true
	}
	return ids
}

// unsaved are the records that are not in the store.
func (h *history) unsaved() []Record {
	n := min(h.added-h.saved, uint64(len(h.records)))
	return h.records[uint64(len(h.records))-n:]
}

func (h *history) trim(limit int) {
	if over := len(h.records) - limit; over > 0 {
		clear(h.records[:over])
		h.records = h.records[over:]
	}
}

// archive writes what has ended to the store until ctx ends, and the rest then.
func (s *Service) archive(ctx context.Context) {
	for tasks.Sleep(ctx, saveEvery) == nil {
		s.archiveOrphans()
		s.saveHistory(ctx)
		s.saveLive(ctx)
	}
	s.saveHistory(context.WithoutCancel(ctx))
	s.saveLive(context.WithoutCancel(ctx))
}

// saveHistory writes the records that are not in the store yet, and deletes the
// pages that are older than the history is long. What cannot be written now is
// written with the next page.
func (s *Service) saveHistory(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for {
		s.mu.Lock()
		h := &s.history
		left := h.unsaved()
		batch, totals := slices.Clone(left[:min(len(left), maxPage)]), h.totals
		until := h.added - uint64(len(left)-len(batch))
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		p, err := s.savePage(ctx, batch, totals)
		if err != nil {
			s.log.Warn("history is not stored; it will be tried again", "records", len(left), "error", err)
			return
		}
		s.mu.Lock()
		h.pages = append(h.pages, p)
		h.saved = until
		old := h.outdated(s.config.History)
		s.mu.Unlock()
		for _, p := range old {
			if err := s.unsave(ctx, p.key); err != nil {
				s.log.Warn("old history is not deleted", "error", err)
			}
		}
	}
}

// outdated takes the oldest pages that the history can do without off the list.
func (h *history) outdated(limit int) []page {
	total := 0
	for _, p := range h.pages {
		total += p.records
	}
	n := 0
	for n < len(h.pages) && total-h.pages[n].records >= limit {
		total -= h.pages[n].records
		n++
	}
	old := h.pages[:n:n]
	h.pages = h.pages[n:]
	return old
}

// savePage writes a page together with the totals that it leads to.
func (s *Service) savePage(ctx context.Context, batch []Record, totals Totals) (page, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := errors.Join(json.NewEncoder(z).Encode(batch), z.Close()); err != nil {
		return page{}, err
	}
	sum, err := json.Marshal(totals)
	if err != nil {
		return page{}, err
	}
	// In the order of their names pages are in the order of their time.
	p := page{fmt.Sprintf("%s%016x-%.8s", keyHistory, time.Now().UnixNano(), agentapi.NewSessionID()), len(batch)}
	return p, s.store.Apply(ctx, store.OpPut(p.key, b.Bytes()), store.OpPut(keyTotals, sum))
}

// loadHistory reads what earlier controllers have stored. A page that cannot be
// read costs only its own records.
func (s *Service) loadHistory(ctx context.Context) (history, error) {
	var h history
	if e, err := s.store.Get(ctx, keyTotals); err == nil {
		err = json.Unmarshal(e.Value, &h.totals)
		if err != nil {
			return h, fmt.Errorf("stored totals: %w", err)
		}
	} else if !errors.Is(err, store.ErrNotFound) {
		return h, fmt.Errorf("read the totals: %w", err)
	}
	entries, err := s.store.List(ctx, keyHistory)
	if err != nil {
		return h, fmt.Errorf("read the history: %w", err)
	}
	for _, e := range entries {
		batch, err := readPage(e.Value)
		if err != nil {
			s.log.Warn("a part of the stored history cannot be read", "key", e.Key, "error", err)
		}
		h.records = append(h.records, batch...)
		h.pages = append(h.pages, page{e.Key, len(batch)})
	}
	return h, nil
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
