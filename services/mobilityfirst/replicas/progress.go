package replicas

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/internal/wholefile"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// progressFile is the name of the file in Options.Dir that keeps the progress over a restart.
	progressFile = "passed-on.json"
	// progressInterval is the time between two writes of the file.
	progressInterval = 10 * time.Second
	// progressSlack is added to the period that is searched: the store counts whole seconds, and a
	// record is queued only after it is on the disk.
	progressSlack = time.Minute
	// scanInterval is the time between two checks whether the store has to be searched.
	scanInterval = time.Second
)

// progress is the content of progressFile.
type progress struct {
	// Domains is a hash of the domains and K. If it differs from the present hash, other domains
	// may keep the names, and the file is ignored.
	Domains string `json:"domains"`
	// Until contains for each domain the time, in seconds since 1970, until which all records have
	// been sent to it.
	Until map[string]int64 `json:"until"`
}

// scan is the state of the search in the store for names that a domain has to receive, because they
// were written before the start or while there was no room for them.
type scan struct {
	missed  bool       // there are such names
	until   time.Time  // all names before it have been sent, except for the pending ones
	next    frame.GUID // where the search continues
	running bool
	started time.Time
}

// digest returns a hash of the domains and K.
func (r *Replicas) digest() string {
	h := sha256.New()
	for _, d := range r.Domains {
		fmt.Fprintf(h, "%q,", d.Name)
	}
	fmt.Fprint(h, r.K)
	return hex.EncodeToString(h.Sum(nil))
}

// catchUp finds the names that were written before the start, or while there was no room for them,
// and queues them. It records the progress until ctx ends.
func (r *Replicas) catchUp(ctx context.Context) error {
	before, err := r.load()
	if err != nil {
		return err
	}
	for _, p := range r.all() {
		p.mu.Lock()
		p.scan = scan{missed: true, until: time.Unix(before.Until[p.Name], 0)}
		p.mu.Unlock()
	}
	written := time.Now()
	for ctx.Err() == nil {
		for _, p := range r.all() {
			switch err := r.search(ctx, p); {
			case err == nil || ctx.Err() != nil:
			case errors.Is(err, record.ErrBusy):
				r.warnLimit.Warn(r.Log, "names that are to be passed on are not looked for now", "domain", p.Name, "error", err)
			default:
				return err
			}
		}
		if time.Since(written) >= progressInterval {
			r.writeProgress()
			written = time.Now()
		}
		_ = tasks.Sleep(ctx, scanInterval)
	}
	r.writeProgress()
	return nil
}

// search queues the names in the store that a domain has to receive, if there are any and there is
// room for them.
func (r *Replicas) search(ctx context.Context, p *peer) error {
	p.mu.Lock()
	s := &p.scan
	if !s.running && s.missed {
		*s = scan{until: s.until, running: true, started: time.Now()}
	}
	from, since, due := s.next, s.until.Add(-r.slack), s.running && len(p.pending) < p.room/2
	p.mu.Unlock()
	if !due {
		return nil
	}
	full := false
	err := r.Store.Since(ctx, since, from, func(name frame.GUID, written time.Time) bool {
		if full = r.keeps(p, name) && !p.add(name, written); full {
			from = name
		}
		return !full
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case full:
		s.next = from
	case err == nil && ctx.Err() == nil:
		s.running, s.until = false, p.oldest(s.started)
	}
	return err
}

// passedUntil returns a time such that all names written before it have been sent to the domain.
func (p *peer) passedUntil(now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.scan.missed && !p.scan.running {
		p.scan.until = p.oldest(now)
	}
	return p.scan.until
}

// oldest returns the time at which the oldest pending name was written, or the time at, if that is
// earlier. The mutex is held.
func (p *peer) oldest(at time.Time) time.Time {
	for _, x := range p.pending {
		if x.since.Before(at) {
			at = x.since
		}
	}
	return at
}

// writeProgress writes progressFile.
func (r *Replicas) writeProgress() {
	now := progress{Domains: r.digest(), Until: map[string]int64{}}
	for _, p := range r.all() {
		now.Until[p.Name] = p.passedUntil(time.Now()).Unix()
	}
	b, err := json.Marshal(now)
	if err == nil {
		err = wholefile.Replace(r.progressPath(), b, 0o600)
	}
	if err != nil {
		r.warnLimit.Warn(r.Log, "after a restart more names are passed on again", "error", err)
	}
}

func (r *Replicas) progressPath() string { return filepath.Join(r.Dir, progressFile) }

// load reads progressFile. The result is empty if there is no file, or if the domains or K have
// changed.
func (r *Replicas) load() (progress, error) {
	var x progress
	b, err := os.ReadFile(r.progressPath())
	if errors.Is(err, fs.ErrNotExist) {
		return x, nil
	}
	if err != nil {
		return x, fmt.Errorf("what names have been passed on: %w", err)
	}
	if err := json.Unmarshal(b, &x); err != nil {
		r.Log.Warn("what names have been passed on can't be read: all are passed on again", "file", r.progressPath(), "error", err)
		return progress{}, nil
	}
	if x.Domains != r.digest() {
		r.Log.Info("names are passed on to the domains that keep them now")
		return progress{}, nil
	}
	for name, until := range x.Until { // a clock may have been wrong
		x.Until[name] = min(until, time.Now().Unix())
	}
	return x, nil
}
