package pebblestore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// SnapshotOptions says which snapshots of a store are kept.
type SnapshotOptions struct {
	// Keep is how many: the latest ones. Zero or less: none are taken.
	Keep int
	// Every is how long after a snapshot the next one is taken, if something has changed.
	Every time.Duration
	// MaxBytes is how much the store may hold for a snapshot to be taken of it, in bytes.
	MaxBytes int64
}

const (
	// firstSnapshot is how long after a start the first one is taken at the latest.
	firstSnapshot = time.Minute
	// maxRestore bounds what a snapshot may hold when it is read, in bytes: as much as a
	// store may have, in the longer form of JSON.
	maxRestore = 4 << 30
)

// keepSnapshots takes snapshots until ctx ends. When one is due is measured from the last
// one's time, so that a controller that is started again and again does not push out what
// was good.
func (s *Store) keepSnapshots(ctx context.Context, o SnapshotOptions) {
	taken := int64(0)
	wait := firstWait(s.opts.Dir, o)
	for {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		wait = o.Every
		revision := s.table.Revision()
		if revision == taken {
			continue
		}
		if err := s.takeSnapshot(ctx, o); err == nil {
			taken = revision
		} else if ctx.Err() == nil {
			s.opts.Log.Warn("no snapshot of the store; it will be tried again", "in", o.Every, "error", err)
		}
	}
}

func firstWait(dir string, o SnapshotOptions) time.Duration {
	wait := min(o.Every, firstSnapshot)
	if all, err := Snapshots(dir); err == nil && len(all) > 0 {
		wait = max(wait, min(o.Every, time.Until(all[0].Time.Add(o.Every))))
	}
	return wait
}

// takeSnapshot writes a snapshot if the file system has room for it, and removes those
// that are too many.
func (s *Store) takeSnapshot(ctx context.Context, o SnapshotOptions) error {
	dir := s.opts.Dir
	if err := clearUnfinished(dir); err != nil {
		return err
	}
	used := s.table.Bytes()
	if used > o.MaxBytes {
		return fmt.Errorf("pebblestore: the store holds %d bytes, and store.snapshots.max_size is %d", used, o.MaxBytes)
	}
	at := time.Now()
	entries, err := s.List(ctx, "")
	if err != nil {
		return err
	}
	// A snapshot is JSON, which takes up to twice the room of the entries, and writes need room, too.
	if why := unwritable(dir, 2*s.opts.MinFree+2*uint64(used)); why != nil {
		return fmt.Errorf("pebblestore: a snapshot needs room: %w", why)
	}
	if err := writeSnapshot(dir, at, entries); err != nil {
		return err
	}
	return prune(dir, o.Keep)
}

// prune removes all but the latest snapshots.
func prune(dir string, keep int) error {
	all, err := Snapshots(dir)
	if err != nil {
		return err
	}
	for _, old := range all[min(keep, len(all)):] {
		if err := os.Remove(old.Path); err != nil {
			return fmt.Errorf("pebblestore: remove an old snapshot: %w", err)
		}
	}
	return nil
}

// clearUnfinished removes what processes that were killed have left.
func clearUnfinished(dir string) error {
	left, _ := filepath.Glob(filepath.Join(dir, snapshotFolder, unfinished+"*")) // a pattern that is well-formed
	for _, file := range left {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("pebblestore: remove an unfinished snapshot: %w", err)
		}
	}
	return nil
}
