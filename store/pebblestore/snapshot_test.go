package pebblestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/logtest"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/pebblestore"
)

// kept opens a store that keeps three snapshots, one a second, and has Run look after it.
func kept(t *testing.T, dir string, o pebblestore.SnapshotOptions) (s *pebblestore.Store, log *logtest.Log) {
	t.Helper()
	log = &logtest.Log{}
	s, err := pebblestore.Open(t.Context(), pebblestore.Options{Dir: dir, Log: log.Logger(), Snapshots: o})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, func(*store.UnwritableError) {}) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-done, s.Close()); err != nil {
			t.Error(err)
		}
	})
	return s, log
}

func snapshots(t *testing.T, dir string) []pebblestore.Snapshot {
	t.Helper()
	all, err := pebblestore.Snapshots(dir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// until waits for a condition of the file system or a log.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var often = pebblestore.SnapshotOptions{Keep: 2, Every: time.Second, MaxBytes: 64 << 20}

// Snapshots are taken when something has changed, the latest are kept, and what a killed
// process has left unfinished goes.
func TestSnapshotsAreKept(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "snapshots", ".unfinished-1")
	if err := errors.Join(os.MkdirAll(filepath.Dir(left), 0o700), os.WriteFile(left, []byte("half"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s, log := kept(t, dir, often)
	var latest time.Time
	for n := range 4 {
		if err := s.Put(t.Context(), fmt.Sprintf("key/%d", n), []byte("value")); err != nil {
			t.Fatal(err)
		}
		until(t, "a snapshot", func() bool {
			all := snapshots(t, dir)
			return len(all) > 0 && all[0].Time.After(latest)
		})
		latest = snapshots(t, dir)[0].Time
	}
	until(t, "older snapshots, and what was left unfinished, to be removed", func() bool {
		files, err := os.ReadDir(filepath.Join(dir, "snapshots"))
		return err == nil && len(files) == 2
	})
	if all := snapshots(t, dir); len(all) != 2 || all[0].Time.Before(latest) {
		t.Errorf("after four snapshots there are %v", all)
	}
	if log.String() != "" {
		t.Errorf("log: %s", log)
	}
}

func TestLargeStoreIsNotCopied(t *testing.T) {
	dir := t.TempDir()
	s, log := kept(t, dir, pebblestore.SnapshotOptions{Keep: 2, Every: time.Second, MaxBytes: 1})
	if err := s.Put(t.Context(), "key", []byte("value")); err != nil {
		t.Fatal(err)
	}
	until(t, "a line in the log", func() bool { return strings.Contains(log.String(), "store.snapshots.max_size") })
	if all := snapshots(t, dir); len(all) != 0 {
		t.Errorf("snapshots: %v", all)
	}
}

// One store is restored from another's snapshot; what was there is put aside, and a
// damaged snapshot changes nothing.
func TestRestore(t *testing.T) {
	from := t.TempDir()
	s, _ := kept(t, from, often)
	for n := range 300 { // more than one Apply takes
		if err := s.Put(t.Context(), fmt.Sprintf("key/%03d", n), bytes.Repeat([]byte{byte(n)}, 2000)); err != nil {
			t.Fatal(err)
		}
	}
	written := time.Now()
	until(t, "a snapshot", func() bool { all := snapshots(t, from); return len(all) > 0 && all[0].Time.After(written) })
	want, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	file := snapshots(t, from)[0].Path

	to := filepath.Join(t.TempDir(), "data")
	old := open(t, to)
	if err := errors.Join(old.Put(t.Context(), "old", nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := pebblestore.Restore(t.Context(), to, file); err == nil || !strings.Contains(err.Error(), "another controller") {
		t.Errorf("restored below a running store: %v", err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{whole[:len(whole)-1], whole[:len(whole)/2], append(bytes.Clone(whole[:len(whole)-6]), 0, 0, 0, 0, 0, 0), []byte("no snapshot"), {}} {
		if err := os.WriteFile(damaged, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := pebblestore.Restore(t.Context(), to, damaged); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("restored from %d bytes of %d: %v", len(b), len(whole), err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pebblestore.Restore(ended, to, file); err == nil {
		t.Error("restored although the time was over")
	}
	expect(t, to, "old")

	done, err := pebblestore.Restore(t.Context(), to, file)
	if err != nil || done.Entries != len(want) || done.Aside == "" {
		t.Fatalf("restored %+v, %v", done, err)
	}
	s = open(t, to)
	defer s.Close()
	got, err := s.List(t.Context(), "")
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d entries, want %d (%v)", len(got), len(want), err)
	}
	for i := range got {
		if got[i].Key != want[i].Key || !bytes.Equal(got[i].Value, want[i].Value) {
			t.Errorf("entry %d is %q, want %q", i, got[i].Key, want[i].Key)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(to, "restoring-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// expect fails unless a store holds nothing but the key, and nothing is kept aside.
func expect(t *testing.T, dir, key string) {
	t.Helper()
	s := open(t, dir)
	defer s.Close()
	got, err := s.List(t.Context(), "")
	if err != nil || len(got) != 1 || got[0].Key != key {
		t.Errorf("the store holds %v, want %q (%v)", got, key, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "store.damaged-*")); len(left) != 0 {
		t.Errorf("kept aside: %v", left)
	}
}
