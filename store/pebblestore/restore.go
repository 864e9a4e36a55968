package pebblestore

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/store"
)

// Restored is the result of a restoration.
type Restored struct {
	// Entries is the number of entries in the store now, and Time the time of the snapshot.
	Entries int       `json:"entries"`
	Time    time.Time `json:"time,omitzero"`
	// Aside is the path of the previous store; empty if there was none.
	Aside string `json:"aside,omitempty"`
}

// Restore replaces a store by the entries of a snapshot, and keeps the previous store aside. No
// controller may be using the folder. Until the new store has been written completely, an error or
// an interruption changes nothing.
func Restore(ctx context.Context, dir, snapshot string) (Restored, error) {
	at, entries, err := readSnapshot(snapshot, maxRestore)
	if err != nil {
		return Restored{}, err
	}
	for i := range entries {
		entries[i].Revision = int64(i) + 1
	}
	aside, err := replaceStore(ctx, dir, entries, "the snapshot "+snapshot+" was restored")
	return Restored{Entries: len(entries), Time: at, Aside: aside}, err
}

// Reset replaces a store by an empty one, and keeps the previous store aside. No controller may be
// using the folder.
func Reset(ctx context.Context, dir string) (Restored, error) {
	aside, err := replaceStore(ctx, dir, nil, "the store was reset")
	return Restored{Aside: aside}, err
}

// replaceStore replaces a store by one with the given entries.
func replaceStore(ctx context.Context, dir string, entries []store.Entry, reason string) (aside string, err error) {
	unlock, err := lock(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	defer func() {
		if err != nil {
			err = fmt.Errorf("pebblestore: restore: %w%s", err, hint(err))
		}
	}()
	if err := clearUnfinishedDatabases(dir); err != nil {
		return "", err
	}
	report, err := examine(ctx, dir)
	if err != nil {
		return "", err
	}
	if fault := report.Err(); fault != nil {
		reason += ": " + fault.Error()
	}
	folder, s, err := writeDatabase(ctx, dir, uint64(len(entries)), slices.Values(entries), slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	if err := giveTo(dir, folder, filepath.Join(dir, "lock")); err != nil {
		return "", err
	}
	if aside, err = exchange(dir, folder, s, reason); err != nil {
		return aside, err
	}
	return aside, giveTo(dir, headFile(dir))
}

// giveTo changes the owner of files to the data folder's owner, because root restores files that
// the controller's user must read.
func giveTo(dir string, paths ...string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	for _, path := range paths {
		err := filepath.WalkDir(path, func(file string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(file, int(owner.Uid), int(owner.Gid))
		})
		if err != nil {
			return fmt.Errorf("give the new store to the owner of %s: %w", dir, err)
		}
	}
	return nil
}
