package etcdstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-net/sluice/store"
)

// FuzzSnapshot: what is read of any bytes is an error, or entries that are written and
// read again alike.
func FuzzSnapshot(f *testing.F) {
	var b bytes.Buffer
	if err := encodeSnapshot(&b, time.Unix(1, 0), []store.Entry{{Key: "a/b", Value: []byte("v")}, {Key: "c"}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		at, entries, err := decodeSnapshot(bytes.NewReader(in), 1<<20)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := encodeSnapshot(&out, at, entries); err != nil {
			t.Fatal(err)
		}
		again, same, err := decodeSnapshot(&out, 4<<20)
		if err != nil || !again.Equal(at) || len(same) != len(entries) || len(entries) > 0 && !reflect.DeepEqual(same, entries) {
			t.Errorf("%v at %v became %v at %v, %v", entries, at, same, again, err)
		}
	})
}

// A snapshot that unpacks to more than it may is refused, not read.
func TestSnapshotIsBounded(t *testing.T) {
	var b bytes.Buffer
	if err := encodeSnapshot(&b, time.Unix(1, 0), []store.Entry{{Key: "zeros", Value: make([]byte, 1<<20)}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := decodeSnapshot(&b, 1<<19); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a snapshot of a megabyte within half of one: %v", err)
	}
}

// What etcd says when it cannot go on becomes the store's error, and its goroutine stays
// where it is.
func TestBrokenSaysWhy(t *testing.T) {
	for cause, want := range map[error]string{
		&fs.PathError{Op: "write", Path: "db", Err: syscall.EIO}:    "look after the disk",
		&fs.PathError{Op: "write", Path: "db", Err: syscall.ENOSPC}: "make room",
		errors.New("strange"): "sluice store check",
	} {
		b := newBroken("/data")
		log := zapLogger(slog.New(slog.DiscardHandler), b, nil)
		go log.Fatal("failed to commit tx", zap.Error(cause)) // hangs for good, as it has to
		<-b.ctx.Done()
		text := context.Cause(b.ctx).Error()
		for _, part := range []string{"/data", "failed to commit tx", cause.Error(), want} {
			if !strings.Contains(text, part) {
				t.Errorf("%q lacks %q", text, part)
			}
		}
	}
}

// The log's next file is there again at the next start, once, whoever has filled the file
// system; one that has been written to is not taken for it.
func TestNextLogIsKept(t *testing.T) {
	dir := t.TempDir()
	wal := walDir(dir)
	fresh := func(name string, head byte) {
		b := make([]byte, segment)
		b[0] = head
		if err := errors.Join(os.MkdirAll(wal, 0o700), os.WriteFile(filepath.Join(wal, name), b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	names := func() string {
		all, _ := filepath.Glob(filepath.Join(wal, "*"))
		spare, _ := filepath.Glob(filepath.Join(dir, "log.*"))
		for i := range all {
			all[i] = filepath.Base(all[i])
		}
		return fmt.Sprint(all, len(spare))
	}
	fresh("1.tmp", 0)
	saveLog(dir)
	if err := os.Remove(filepath.Join(wal, "1.tmp")); err != nil { // as etcd does
		t.Fatal(err)
	}
	if err := keepLog(dir); err != nil || names() != "[0.tmp] 0" {
		t.Errorf("after an orderly stop: %s, %v", names(), err)
	}
	fresh("1.tmp", 0)
	if err := keepLog(dir); err != nil || names() != "[0.tmp] 0" {
		t.Errorf("after a kill: %s, %v", names(), err)
	}
	fresh("0.tmp", 1)
	if err := keepLog(dir); err != nil || names() != "[] 0" {
		t.Errorf("after a kill while it was put to use: %s, %v", names(), err)
	}
}

// An etcd that has found the file system full once does not look again: nothing is written
// by it any more, and as soon as there is room Run starts another in its place. Watches
// end with the first one, as they may.
func TestStuckLogIsOpenedAnew(t *testing.T) {
	s, err := OpenEmbedded(t.Context(), EmbeddedOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Put(t.Context(), "before", nil); err != nil {
		t.Fatal(err)
	}
	changes, err := s.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	s.embedded.room.setStuck()
	var refused *store.NoRoomError
	if err := s.Put(t.Context(), "a", nil); !errors.As(err, &refused) {
		t.Errorf("a write without a next log file: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var told []string
	var asking sync.WaitGroup
	for range 4 { // while it is started anew
		asking.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Get(t.Context(), "before"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	err = s.Run(ctx, func(why *store.NoRoomError) {
		told = append(told, fmt.Sprint(why != nil))
		if why == nil {
			cancel()
		}
	})
	asking.Wait()
	if err != nil || fmt.Sprint(told) != "[true false]" {
		t.Errorf("Run: %v; it has told %v", err, told)
	}
	if c, open := <-changes; open {
		t.Errorf("a watch of before reports %v", c)
	}
	changes, err = s.Watch(t.Context(), "")
	if err := errors.Join(err, s.Put(t.Context(), "after", nil)); err != nil {
		t.Fatal(err)
	}
	if c := <-changes; c.Key != "after" {
		t.Errorf("a new watch reports %v", c)
	}
	if _, err := s.Get(t.Context(), "before"); err != nil {
		t.Error(err)
	}
}

// What has been admitted and may be in the database stays within what is allocated, however
// many write.
func TestRoomIsAllocatedAhead(t *testing.T) {
	s, err := OpenEmbedded(t.Context(), EmbeddedOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := s.embedded.room
	value := bytes.Repeat([]byte("x"), 300<<10)
	for i := range 60 {
		if err := s.Put(t.Context(), fmt.Sprintf("key/%d", i), value); err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		if r.size()+r.pending > r.reserved || r.flying != 0 {
			t.Errorf("after write %d the database has %d bytes and %d to come, %d are allocated; %d in flight", i, r.size(), r.pending, r.reserved, r.flying)
		}
		r.mu.Unlock()
	}
	var info syscall.Stat_t
	if err := syscall.Stat(databaseFile(s.embedded.opts.Dir), &info); err != nil {
		t.Fatal(err)
	}
	if size := r.size(); info.Blocks*512 < size+slack || size < 60*300<<10 {
		t.Errorf("%d bytes are allocated for a database of %d", info.Blocks*512, size)
	}
}
