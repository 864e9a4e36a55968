package pebblestore_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/pebblestore"
	"github.com/sluice-net/sluice/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, dir string) *pebblestore.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := pebblestore.Open(ctx, pebblestore.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, t.TempDir()) })
}

// What was written, changed and removed is so after a restart, with its revisions.
func TestSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := range 300 {
		must(s.Put(t.Context(), fmt.Sprintf("key/%d", n), bytes.Repeat([]byte{byte(n)}, n)))
	}
	must(s.Put(t.Context(), "key/7", []byte("other")))
	must(s.Delete(t.Context(), "key/8"))
	want, err := s.List(t.Context(), "")
	must(err)
	must(s.Close())
	s = open(t, dir)
	defer s.Close()
	got, err := s.List(t.Context(), "")
	must(err)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after a restart %d entries, or others than the %d before", len(got), len(want))
	}
	must(s.Put(t.Context(), "new", nil))
	last, err := s.Get(t.Context(), "new")
	must(err)
	for _, e := range want {
		if e.Revision >= last.Revision {
			t.Errorf("%q has revision %d, and what was written later has %d", e.Key, e.Revision, last.Revision)
		}
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer s.Close()
	_, err := pebblestore.Open(t.Context(), pebblestore.Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "another controller") {
		t.Errorf("a second store on the same folder: %v", err)
	}
}

func TestFolderIsPrivate(t *testing.T) {
	dir := t.TempDir() + "/data"
	s := open(t, dir)
	defer s.Close()
	for _, folder := range []string{dir, dir + "/store"} {
		info, err := os.Stat(folder)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", folder, info.Mode(), err)
		}
	}
}

func TestQuiet(t *testing.T) {
	var log bytes.Buffer
	s, err := pebblestore.Open(t.Context(), pebblestore.Options{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if log.Len() != 0 {
		t.Errorf("starting, using and stopping it logged:\n%s", &log)
	}
}

// Writes that go to the disk together see each other: of many that count up by a condition
// none is lost.
func TestConcurrentCounters(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	const writers, each = 8, 25
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < each; {
				op := store.OpCreate("n", []byte("1"))
				if e, err := s.Get(t.Context(), "n"); err == nil {
					op = store.OpUpdate("n", append(e.Value, '1'), e.Revision)
				}
				if s.Apply(t.Context(), op) == nil {
					done++
				}
			}
		})
	}
	wg.Wait()
	if e, err := s.Get(t.Context(), "n"); err != nil || len(e.Value) != writers*each {
		t.Errorf("counted to %d, %v; want %d", len(e.Value), err, writers*each)
	}
}

func TestTooLargeAChangeIsRefused(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	if err := s.Put(t.Context(), "large", make([]byte, 2<<20)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("2 MiB at once: %v", err)
	}
	if err := s.Put(t.Context(), "large", make([]byte, 1<<20)); err != nil {
		t.Error(err)
	}
}

// BenchmarkPut measures durable writes of 200 bytes by several writers.
func BenchmarkPut(b *testing.B) {
	s := open(b, b.TempDir())
	defer s.Close()
	value := bytes.Repeat([]byte("x"), 200)
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for n := 0; pb.Next(); n++ {
			if err := s.Put(b.Context(), fmt.Sprintf("key/%d", n%1000), value); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
