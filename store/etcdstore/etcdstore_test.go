package etcdstore_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/etcdstore"
	"github.com/sluice-net/sluice/store/storetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// etcd starts this one for the process's lifetime.
		goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"),
		// What etcd cannot go on with stays until the process ends.
		goleak.IgnoreTopFunction("github.com/sluice-net/sluice/store/etcdstore.(*broken).OnWrite"))
}

func open(t *testing.T, dir string) *etcdstore.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := etcdstore.OpenEmbedded(ctx, etcdstore.EmbeddedOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, t.TempDir()) })
}

func TestSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Put(t.Context(), "kept", []byte("value")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	defer s.Close()
	if e, err := s.Get(t.Context(), "kept"); err != nil || string(e.Value) != "value" {
		t.Errorf("after a restart: %q, %v", e.Value, err)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer s.Close()
	_, err := etcdstore.OpenEmbedded(t.Context(), etcdstore.EmbeddedOptions{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "another controller") {
		t.Errorf("a second store on the same folder: %v", err)
	}
}

func TestFolderIsPrivateAndNothingListens(t *testing.T) {
	dir := t.TempDir() + "/data"
	before := listeners(t)
	s := open(t, dir)
	defer s.Close()
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("data folder: %v, %v", info.Mode(), err)
	}
	if after := listeners(t); after != before {
		t.Errorf("%d of this process's descriptors are sockets, %d before etcd was started", after, before)
	}
}

// listeners counts the sockets this process has open.
func listeners(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("needs /proc")
	}
	n := 0
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

func TestQuiet(t *testing.T) {
	var log bytes.Buffer
	s, err := etcdstore.OpenEmbedded(t.Context(), etcdstore.EmbeddedOptions{
		Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
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
		t.Errorf("starting, using and stopping etcd logged:\n%s", &log)
	}
}

func TestExternalUnreachable(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := etcdstore.OpenExternal(ctx, etcdstore.ExternalOptions{Endpoints: []string{"http://127.0.0.1:1"}})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("connecting to nothing: %v", err)
	}
}
