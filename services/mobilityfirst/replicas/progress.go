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
	// progressFile is in the folder.
	progressFile = "passed-on.json"
	// progressEvery is how often it is written.
	progressEvery = 10 * time.Second
	// progressSlack is how much earlier a name may have been written that is looked for: the store counts whole seconds, and a
	// record is noted as to be passed on only when it is on the disk.
	progressSlack = time.Minute
	// scanEvery is how often it is looked whether names have to be looked for in the store.
	scanEvery = time.Second
)

// progress is what has been passed on, as it is on disk.
type progress struct {
	// Domains stands for the domains, and how many keep each name: with others, names are others' to keep.
	Domains string `json:"domains"`
	// Until is, by domain, until when all has been passed on that was written here, in seconds since 1970.
	Until map[string]int64 `json:"until"`
}

// scan is the search of the store for names that a domain has to be told, because they were written before the start, or when
// there was no room for them.
type scan struct {
	missed bool       // there are such names
	until  time.Time  // all before it has been passed on, but for what is behind
	from   frame.GUID // where it goes on
	going  bool
	began  time.Time
}

// digest stands for the domains, and how many keep each name.
func (r *Replicas) digest() string {
	h := sha256.New()
	for _, d := range r.Domains {
		fmt.Fprintf(h, "%q,", d.Name)
	}
	fmt.Fprint(h, r.K)
	return hex.EncodeToString(h.Sum(nil))
}

// keepUp has the names passed on that were written before the start and have not been, or for which there was no room, and
// notes how far that is, until ctx ends.
func (r *Replicas) keepUp(ctx context.Context) error {
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
				r.lines.Warn(r.Log, "names that are to be passed on are not looked for now", "domain", p.Name, "error", err)
			default:
				return err
			}
		}
		if time.Since(written) >= progressEvery {
			r.note()
			written = time.Now()
		}
		_ = tasks.Sleep(ctx, scanEvery)
	}
	r.note()
	return nil
}

// search looks in the store for names that a domain has to be told, if there are such and there is room for them.
func (r *Replicas) search(ctx context.Context, p *peer) error {
	p.mu.Lock()
	s := &p.scan
	if !s.going && s.missed {
		*s = scan{until: s.until, going: true, began: time.Now()}
	}
	from, since, due := s.from, s.until.Add(-r.slack), s.going && len(p.behind) < p.room/2
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
		s.from = from
	case err == nil && ctx.Err() == nil:
		s.going, s.until = false, p.oldest(s.began)
	}
	return err
}

// passed is until when all has been passed on.
func (p *peer) passed(now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.scan.missed && !p.scan.going {
		p.scan.until = p.oldest(now)
	}
	return p.scan.until
}

// oldest is a time, or when the oldest was written of the names that are to be passed on, if that is earlier. The lock is held.
func (p *peer) oldest(at time.Time) time.Time {
	for _, x := range p.behind {
		if x.since.Before(at) {
			at = x.since
		}
	}
	return at
}

// note writes down what has been passed on.
func (r *Replicas) note() {
	now := progress{Domains: r.digest(), Until: map[string]int64{}}
	for _, p := range r.all() {
		now.Until[p.Name] = p.passed(time.Now()).Unix()
	}
	b, err := json.Marshal(now)
	if err == nil {
		err = wholefile.Replace(r.progressPath(), b, 0o600)
	}
	if err != nil {
		r.lines.Warn(r.Log, "after a restart more names are passed on again", "error", err)
	}
}

func (r *Replicas) progressPath() string { return filepath.Join(r.Dir, progressFile) }

// load reads what has been passed on: nothing, if nothing says so, or other domains were to keep the names.
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
