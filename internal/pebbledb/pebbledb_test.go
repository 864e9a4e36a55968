package pebbledb

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// put writes a key and a value.
func (d *DB) put(key, value string) error {
	b := d.NewBatch()
	if err := b.Set([]byte(key), []byte(value), nil); err != nil {
		return err
	}
	return d.Commit(b)
}

func open(t *testing.T, dir string, fs vfs.FS) *DB {
	t.Helper()
	d, err := Open(dir, &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatNewest, MemTableSize: 64 << 10}, slog.New(slog.DiscardHandler))
	must(t, err)
	return d
}

// A database whose disk fails refuses commits with the disk's error, and never touches the
// folder again, so that another one can use it at once. That other one has all that was
// acknowledged.
func TestFailedDatabaseLeavesItsFolderAlone(t *testing.T) {
	dir := t.TempDir()
	var fails, after atomic.Bool
	var touched atomic.Int64
	fs := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		if after.Load() && op.Kind != errorfs.OpFileClose {
			touched.Add(1)
		}
		if fails.Load() {
			return syscall.EIO
		}
		return nil
	}))
	d := open(t, dir, fs)
	must(t, d.put("a", "1"), d.Err())
	fails.Store(true)
	if err := d.put("b", "2"); !errors.Is(err, syscall.EIO) || !errors.Is(d.Err(), syscall.EIO) {
		t.Errorf("a commit on a failing disk: %v; it has failed with %v", err, d.Err())
	}
	<-d.Failed()
	after.Store(true)
	fails.Store(false) // it has failed for good all the same
	for range 100 {    // more than it has in memory: it writes a log and a sorted file, and does not
		if err := d.put("c", string(make([]byte, 4<<10))); !errors.Is(err, syscall.EIO) {
			t.Errorf("a commit later: %v", err)
		}
	}
	if _, err := d.AsyncFlush(); err != nil {
		t.Error(err)
	}
	other := open(t, dir, nil)
	must(t, d.Close())
	if n := touched.Load(); n != 0 {
		t.Errorf("the database that has failed has written %d times", n)
	}
	v, closer, err := other.Get([]byte("a"))
	must(t, err)
	if string(v) != "1" {
		t.Errorf("a is %q", v)
	}
	must(t, closer.Close(), other.put("d", "4"), other.Close())
}

// What Pebble would end the process for becomes the database's error.
func TestFatalIsAnError(t *testing.T) {
	d := open(t, t.TempDir(), nil)
	logger{d}.Fatalf("%s: %v", "something", syscall.ENOSPC)
	if err := d.put("a", "1"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a commit: %v", err)
	}
	must(t, d.Close())
}
