package pebblestore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// SnapshotOptions determine which snapshots of a store are kept.
type SnapshotOptions struct {
	// Keep is the number of snapshots that are kept, the latest ones. Zero or less disables
	// snapshots.
	Keep int
	// Every is the time between two snapshots, if something has changed.
	Every time.Duration
	// MaxBytes is the largest size of a store of which snapshots are taken, in bytes.
	MaxBytes int64
}

const (
	// firstSnapshot is the longest time from a start to the first snapshot.
	firstSnapshot = time.Minute
	// maxRestore limits the content of a snapshot that is read, in bytes: the limit of a store,
	// in the longer form of JSON.
	maxRestore = 4 << 30
)

// keepSnapshots takes snapshots until ctx ends. The next snapshot is due relative to the time of
// the last one, so that a controller which restarts repeatedly does not replace good snapshots.
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

// takeSnapshot writes a snapshot if the file system has space for it, and removes the oldest
// ones if there are too many.
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
	// A snapshot is JSON, which takes up to twice the size of the entries. Other writes need
	// space, too.
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

// clearUnfinished removes unfinished snapshots of killed processes.
func clearUnfinished(dir string) error {
	left, _ := filepath.Glob(filepath.Join(dir, snapshotFolder, unfinished+"*")) // a pattern that is well-formed
	for _, file := range left {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("pebblestore: remove an unfinished snapshot: %w", err)
		}
	}
	return nil
}
