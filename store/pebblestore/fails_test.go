package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-net/sluice/internal/logtest"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/store"
)

// disk is a file system that can be made to fail.
type disk struct {
	fails atomic.Pointer[error]
	only  func(errorfs.Op) bool
}

func (d *disk) fs() vfs.FS {
	return errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if err := d.fails.Load(); err != nil && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && d.only(op) {
			return *err
		}
		return nil
	}))
}

func (d *disk) fail(err error) { d.fails.Store(&err) }
func (d *disk) mend()          { d.fails.Store(nil) }

// writes tries to write until it succeeds.
func writes(t *testing.T, s *Store, key, value string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; pause.For(20*time.Millisecond, "the store is tried again") {
		err := s.Put(t.Context(), key, []byte(value))
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// Whatever of the disk fails, with whatever error: the process goes on, writes are refused
// with the reason, reads go on, and writes are accepted again when the disk works. What was
// refused is not there then, and what was acknowledged is, also after a restart.
func TestFailingDisk(t *testing.T) {
	kinds := map[string]func(errorfs.Op) bool{
		"everything":   func(errorfs.Op) bool { return true },
		"the log":      func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".log") },
		"syncs":        func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData },
		"new files":    func(op errorfs.Op) bool { return op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite },
		"sorted files": func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") },
		"the manifest": func(op errorfs.Op) bool { return strings.Contains(op.Path, "MANIFEST") },
	}
	for kind, only := range kinds {
		for _, cause := range []error{syscall.EROFS, syscall.EIO, syscall.ENOSPC} {
			t.Run(fmt.Sprintf("%s, %v", kind, cause), func(t *testing.T) {
				t.Parallel()
				d := &disk{only: only}
				var log logtest.Log
				dir := t.TempDir()
				s := opened(t, Options{Dir: dir, Log: log.Logger(), fs: d.fs()})
				must(t, s.Put(t.Context(), "before", []byte("kept")))
				changes, err := s.Watch(t.Context(), "")
				must(t, err)
				d.fail(cause)
				acknowledged := map[string]bool{}
				large := make([]byte, 200<<10)
				var refused error
				for n := 0; refused == nil && n < 200; n++ {
					key := fmt.Sprintf("during/%d", n)
					if refused = s.Put(t.Context(), key, large); refused == nil {
						acknowledged[key] = true
					}
				}
				var why *store.UnwritableError
				if !errors.As(refused, &why) || !errors.Is(refused, cause) {
					t.Fatalf("refused with %v after %d writes, want %v", refused, len(acknowledged), cause)
				}
				for range 5 {
					if err := s.Put(t.Context(), "refused", nil); !errors.As(err, &why) {
						t.Errorf("a write while it fails: %v", err)
					}
				}
				if e, err := s.Get(t.Context(), "before"); err != nil || string(e.Value) != "kept" {
					t.Errorf("a read while it fails: %q, %v", e.Value, err)
				}
				d.mend()
				writes(t, s, "after", "written")
				if s.Room() != nil {
					t.Errorf("writes are accepted, and Room says %v", s.Room())
				}
				for n := 0; ; n++ {
					if c := <-changes; c.Key == "after" {
						if n != len(acknowledged) {
							t.Errorf("the watch reports %d changes, %d were acknowledged", n, len(acknowledged))
						}
						break
					}
				}
				look := func(s *Store) {
					t.Helper()
					all, err := s.List(t.Context(), "")
					must(t, err)
					if len(all) != len(acknowledged)+2 {
						t.Errorf("it holds %d entries, %d were acknowledged", len(all), len(acknowledged)+2)
					}
				}
				look(s)
				must(t, s.Close())
				s = opened(t, Options{Dir: dir, Log: log.Logger()})
				look(s)
				must(t, s.Close())
			})
		}
	}
}

// A database that is found damaged while it is in use is written anew from memory, and the
// damaged one is kept aside.
func TestDamageInUseIsMended(t *testing.T) {
	d := &disk{only: func(errorfs.Op) bool { return true }}
	var log logtest.Log
	dir := filepath.Join(t.TempDir(), "data")
	want := filled(t, dir)
	s := opened(t, Options{Dir: dir, Log: log.Logger(), fs: d.fs()})
	files, err := filepath.Glob(filepath.Join(databaseDir(dir), "*.sst"))
	must(t, err)
	if len(files) == 0 {
		t.Fatal("the test needs a sorted file")
	}
	f, err := os.OpenFile(files[0], os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(make([]byte, 4096), 100)
	must(t, err, f.Close())
	d.fail(syscall.EIO)
	if err := s.Put(t.Context(), "refused", nil); err == nil {
		t.Fatal("a write was accepted")
	}
	d.mend()
	writes(t, s, "after", "written")
	must(t, s.Delete(t.Context(), "after"))
	all, err := s.List(t.Context(), "")
	if text(t, all, err) != want {
		t.Error("it holds something else than before")
	}
	if aside := s.Damaged(); len(aside) != 1 || !strings.Contains(aside[0].Reason, "written it anew") {
		t.Errorf("kept aside: %+v", aside)
	}
	must(t, s.Close())
	s = opened(t, Options{Dir: dir, Log: log.Logger()})
	all, err = s.List(t.Context(), "")
	if text(t, all, err) != want {
		t.Error("after a restart it holds something else than before")
	}
	must(t, s.Close())
	if !strings.Contains(log.String(), "was damaged while it was in use") {
		t.Errorf("log: %s", log.String())
	}
}

// A disk that does not answer keeps writes waiting for their deadline, and nobody else.
func TestHangingDisk(t *testing.T) {
	hang := make(chan struct{})
	var hangs atomic.Bool
	fs := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if hangs.Load() && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
			<-hang
		}
		return nil
	}))
	var log logtest.Log
	s := opened(t, Options{Dir: t.TempDir(), Log: log.Logger(), fs: fs})
	must(t, s.Put(t.Context(), "before", []byte("kept")))
	hangs.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Put(ctx, "during", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write: %v", err)
	}
	if e, err := s.Get(t.Context(), "before"); err != nil || string(e.Value) != "kept" {
		t.Errorf("a read: %q, %v", e.Value, err)
	}
	hangs.Store(false)
	close(hang)
	writes(t, s, "after", "written")
	must(t, s.Close())
}
