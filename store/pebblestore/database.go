package pebblestore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-net/sluice/internal/pebbledb"
	"github.com/sluice-net/sluice/internal/wholefile"
	"github.com/sluice-net/sluice/store"
)

const (
	// memTable is how much data the database collects in memory before it writes a sorted file,
	// in bytes. Its log is allocated with the same size.
	memTable = 1 << 20
	// blockCache is small, because the database is read only at a start.
	blockCache = 256 << 10
	// batchBytes limits a single write while a whole store is written.
	batchBytes = 256 << 10
)

// databaseDir returns the folder of the database below the data folder.
func databaseDir(dir string) string { return filepath.Join(dir, "store") }

const (
	unfinishedDatabase = "store.new-"
	damagedDatabase    = "store.damaged-"
	reasonFile         = "DAMAGE" // in a replaced database: why it was replaced
)

// openDatabase opens the database in a folder. A nil fs means the machine's file system.
func openDatabase(folder string, readOnly bool, fs vfs.FS, log *slog.Logger) (*pebbledb.DB, error) {
	return pebbledb.Open(folder, &pebble.Options{
		FS: fs, ReadOnly: readOnly, ErrorIfNotExists: readOnly, FormatMajorVersion: pebble.FormatNewest,
		MemTableSize: memTable, CacheSize: blockCache, DisableTableStats: true,
	}, log)
}

// content is the whole content of a database.
type content struct {
	summary
	entries []store.Entry
}

// readContent reads a whole database and compares it with its summary. An error describes the
// damage.
func readContent(ctx context.Context, folder string, log *slog.Logger) (c content, err error) {
	db, err := openDatabase(folder, true, nil, log)
	if err != nil {
		return c, err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the database cannot be read: %v", p)
		}
		if failed := db.Err(); failed != nil {
			err = failed // it names the file
		}
		if closed := db.Close(); err == nil {
			err = closed
		}
	}()
	it, err := db.NewIter(nil)
	if err != nil {
		return c, err
	}
	defer func() {
		if closed := it.Close(); err == nil {
			err = closed // possibly the same error as before
		}
	}()
	var found summary
	var faults faultList
	whole := false
	for ok := it.First(); ok; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return c, err
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return c, err
		}
		if string(it.Key()) == summaryKey {
			if c.summary, err = decodeSummary(value); err != nil {
				faults.add(err)
			}
			whole = true
			continue
		}
		e, err := decodeEntry(it.Key(), value)
		if err != nil {
			faults.add(err)
			continue
		}
		found.replace(store.Entry{}, false, e, true)
		c.entries = append(c.entries, e)
	}
	if err := it.Error(); err != nil {
		return c, err
	}
	if !whole {
		faults.add(errors.New("it has no summary"))
	}
	if len(faults.errs) == 0 && (found.count != c.count || found.digest != c.digest) {
		faults.add(fmt.Errorf("it has %d entries and should have %d, or others than those", found.count, c.count))
	}
	return c, faults.err()
}

// faultList collects faults. It keeps the first ones in full and counts the others.
type faultList struct {
	errs []error
	more int
}

// maxFaults limits the faults that are described.
const maxFaults = 8

func (f *faultList) add(err error) {
	if len(f.errs) == maxFaults {
		f.more++
		return
	}
	f.errs = append(f.errs, err)
}

func (f *faultList) err() error {
	if len(f.errs) == 0 {
		return nil
	}
	text := f.errs[0].Error()
	for _, e := range f.errs[1:] {
		text += ", " + e.Error()
	}
	if f.more > 0 {
		text += fmt.Sprintf(", and %d more", f.more)
	}
	return errors.New(text)
}

// writeDatabase writes a whole store into a new folder below dir, and returns the folder and the
// summary.
func writeDatabase(ctx context.Context, dir string, revision uint64, entries func(func(store.Entry) bool), log *slog.Logger) (folder string, s summary, err error) {
	if folder, err = os.MkdirTemp(dir, unfinishedDatabase); err != nil {
		return "", s, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(folder))
		}
	}()
	db, err := openDatabase(folder, false, nil, log)
	if err != nil {
		return folder, s, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s.revision = revision
	_, _ = rand.Read(s.id[:]) // it never fails
	b := db.NewBatch()
	defer func() { _ = b.Close() }()
	for e := range entries {
		if err := ctx.Err(); err != nil {
			return folder, s, err
		}
		s.replace(store.Entry{}, false, e, true)
		key, value := encodeEntry(e)
		if err := b.Set(key, value, nil); err != nil {
			return folder, s, err
		}
		if b.Len() >= batchBytes {
			if err := db.Commit(b); err != nil {
				return folder, s, err
			}
			_ = b.Close() // what has been committed cannot fail to close
			b = db.NewBatch()
		}
	}
	if err := b.Set([]byte(summaryKey), s.encode(), nil); err != nil {
		return folder, s, err
	}
	return folder, s, db.Commit(b)
}

// exchange replaces the old database by a new one. The old one is kept aside with the reason;
// aside is empty if there was none. If exchange is interrupted, the next start finds a database
// that does not belong to the head, or none, and reports that.
func exchange(dir, folder string, s summary, reason string) (aside string, err error) {
	here := databaseDir(dir)
	if _, err := os.Lstat(here); err == nil {
		if err := os.WriteFile(filepath.Join(here, reasonFile), []byte(reason+"\n"), 0o600); err != nil {
			return "", fmt.Errorf("note why the old store is put aside: %w", err)
		}
		aside = filepath.Join(dir, damagedDatabase+time.Now().UTC().Format(snapshotName))
		if err := os.Rename(here, aside); err != nil {
			return "", fmt.Errorf("put the old store aside: %w", err)
		}
	}
	if err := os.Rename(folder, here); err != nil {
		return aside, fmt.Errorf("put the new store in its place: %w", err)
	}
	if err := wholefile.SyncFolder(dir); err != nil {
		return aside, err
	}
	if err := writeHead(dir, headState{s.id, s.revision}); err != nil {
		return aside, fmt.Errorf("write the head of the new store: %w", err)
	}
	return aside, nil
}

// clearUnfinishedDatabases removes unfinished databases of killed processes.
func clearUnfinishedDatabases(dir string) error {
	left, _ := filepath.Glob(filepath.Join(dir, unfinishedDatabase+"*")) // a pattern that is well-formed
	for _, folder := range left {
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	return nil
}
