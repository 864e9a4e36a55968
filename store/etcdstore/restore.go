package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/internal/wholefile"
	"github.com/sluice-net/sluice/store"
)

// Restored is what a restoration has done.
type Restored struct {
	// Entries is how many entries the store has now, Time when the snapshot was taken.
	Entries int       `json:"entries"`
	Time    time.Time `json:"time"`
	// Aside is where what was there before is kept; empty if nothing was.
	Aside string `json:"aside,omitempty"`
}

const (
	// Bounds of what is put into the store at once.
	restoreOps   = 128
	restoreBytes = 512 << 10
)

// Restore puts the entries of a snapshot in the place of a store, and what was there
// aside. No controller may run on the folder. If it fails, or is interrupted before the
// new store is complete, nothing has changed.
func Restore(ctx context.Context, dir, snapshot string) (Restored, error) {
	at, entries, err := readSnapshot(snapshot, maxRestore)
	if err != nil {
		return Restored{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Restored{}, fmt.Errorf("etcdstore: make the data folder: %w", err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return Restored{}, err
	}
	defer unlock()
	work, err := os.MkdirTemp(dir, "restoring-")
	if err != nil {
		return Restored{}, fmt.Errorf("etcdstore: restore: %w", err)
	}
	defer os.RemoveAll(work)
	if err := rebuild(ctx, work, entries); err != nil {
		return Restored{}, err
	}
	if err := giveTo(dir, work, filepath.Join(dir, "lock")); err != nil {
		return Restored{}, err
	}
	aside, err := exchange(dir, work)
	return Restored{Entries: len(entries), Time: at, Aside: aside}, err
}

// rebuild makes a store of the entries in an empty folder.
func rebuild(ctx context.Context, work string, entries []store.Entry) error {
	s, err := OpenEmbedded(ctx, EmbeddedOptions{Dir: work, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	for len(entries) > 0 && err == nil {
		var ops []store.Op
		bytes := 0
		for len(ops) < min(restoreOps, len(entries)) && (len(ops) == 0 || bytes < restoreBytes) {
			e := entries[len(ops)]
			bytes += len(e.Key) + len(e.Value)
			if bytes > restoreBytes && len(ops) > 0 {
				break
			}
			ops = append(ops, store.OpPut(e.Key, e.Value))
		}
		err = s.Apply(ctx, ops...)
		entries = entries[len(ops):]
	}
	return errors.Join(err, s.Close())
}

// exchange puts the new store in the place of the old one. Between its two steps there is
// no store: a start then says that there are snapshots, and does not begin with nothing.
func exchange(dir, work string) (aside string, err error) {
	here := etcdFolder(dir)
	aside = here + ".damaged-" + time.Now().UTC().Format(snapshotName)
	if err := os.Rename(here, aside); errors.Is(err, fs.ErrNotExist) {
		aside = ""
	} else if err != nil {
		return "", fmt.Errorf("etcdstore: put the old store aside: %w", err)
	}
	if err := os.Rename(etcdFolder(work), here); err != nil {
		return aside, fmt.Errorf("etcdstore: put the new store in its place: %w", err)
	}
	if err := wholefile.SyncFolder(dir); err != nil {
		return aside, fmt.Errorf("etcdstore: restore: %w", err)
	}
	return aside, nil
}

// giveTo makes files those of the data folder's owner: root restores what the controller's
// user has to read.
func giveTo(dir string, paths ...string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("etcdstore: restore: %w", err)
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
			return fmt.Errorf("etcdstore: give the new store to the owner of %s: %w", dir, err)
		}
	}
	return nil
}
