package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/folderlock"
	"github.com/sluice-net/sluice/internal/wholefile"
)

// Journal is the list of changes, on disk. One process at a time holds it. It must not be used
// concurrently.
type Journal struct {
	path    string
	lock    *os.File
	changes []Change
}

// JournalFile is the journal's name in its directory. The file exists as long as there are changes
// to undo.
const JournalFile = "changes.json"

// OpenJournal opens the journal in a directory, which is created if it does not exist. The journal
// contains the changes that an earlier process has not undone. The error wraps folderlock.ErrBusy
// if another daemon holds the journal.
func OpenJournal(dir string) (*Journal, error) {
	lock, err := folderlock.Take(dir, 0o700)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{path: filepath.Join(dir, JournalFile), lock: lock}
	if err := j.read(); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return j, nil
}

// read reads the changes from disk.
func (j *Journal) read() error {
	b, err := os.ReadFile(j.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := json.Unmarshal(b, &j.changes); err != nil {
		return fmt.Errorf("journal %s is damaged: %w (put the device in order by hand, then remove the file)", j.path, err)
	}
	return nil
}

// Len returns the number of changes that are not undone.
func (j *Journal) Len() int { return len(j.changes) }

// Record records changes that are about to be made.
func (j *Journal) Record(changes ...Change) error {
	if len(changes) == 0 {
		return nil
	}
	now := time.Now()
	for _, c := range changes {
		c.At = now
		j.changes = append(j.changes, c)
	}
	return j.write()
}

// Undo undoes the changes that match, the latest first; nil matches all. Changes that cannot be
// undone stay in the journal.
func (j *Journal) Undo(match func(Change) bool) error {
	var left []Change
	var errs []error
	for i := len(j.changes) - 1; i >= 0; i-- {
		c := j.changes[i]
		if match != nil && !match(c) {
			left = append(left, c)
			continue
		}
		if err := c.undo(); err != nil {
			errs = append(errs, fmt.Errorf("restore %s: %w", c, err))
			left = append(left, c)
		}
	}
	slices.Reverse(left)
	j.changes = left
	return errors.Join(append(errs, j.write())...)
}

// write writes the journal to disk, completely or not at all.
func (j *Journal) write() error {
	if len(j.changes) == 0 {
		if err := os.Remove(j.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("journal: %w", err)
		}
		return nil
	}
	b, err := json.MarshalIndent(j.changes, "", "  ")
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := wholefile.Replace(j.path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Close releases the journal for other processes.
func (j *Journal) Close() error { return j.lock.Close() }
