package namestore

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// diskOf is a file system with a declared free space.
type diskOf struct {
	vfs.FS
	free atomic.Uint64
}

func (d *diskOf) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load()}, nil
}

// logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// lines returns the lines of the log.
func (l *logText) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSuffix(l.text.String(), "\n"), "\n")
}

// awaitLine waits until the log has n lines, and checks that the last one contains each of want.
func (l *logText) awaitLine(t *testing.T, n int, want ...string) {
	t.Helper()
	for began := time.Now(); len(l.lines()) < n; pause.For(10*time.Millisecond, "the store looks at its disk") {
		if time.Since(began) > time.Minute {
			t.Fatalf("%d lines, want %d: %q", len(l.lines()), n, l.lines())
		}
	}
	all := l.lines()
	for _, part := range want {
		if len(all) != n || !strings.Contains(all[n-1], part) {
			t.Errorf("%d lines, the last of them %q: want %d, and %q", len(all), all[len(all)-1], n, part)
		}
	}
}

// A store on a full disk logs that when it is opened, and one line for each change, at most one a
// minute, however many writes it refuses.
func TestRoomIsLogged(t *testing.T) {
	var ahead atomic.Int64
	now, log, disk := time.Now(), &logText{}, &diskOf{FS: vfs.Default}
	disk.free.Store(3_000_000)
	dir := t.TempDir()
	s := open(t, Options{
		Dir: dir, MaxNames: 1, fs: disk, Log: slog.New(slog.NewTextHandler(log, nil)),
		Now: func() time.Time { return now.Add(time.Duration(ahead.Load())) },
	})
	log.awaitLine(t, 1, "level=ERROR", "the disk of the names is full", dir, `free="3000 kB"`, "needed=16MiB")
	until := now.Add(time.Hour)
	for range 100 {
		err := s.Write(t.Context(), sign(t, 1, 1, until, 1))
		if !errors.Is(err, record.ErrFull) || !strings.Contains(err.Error(), "3000 kB are free in "+dir+", 64MiB are needed") {
			t.Fatalf("a write on a full disk: %v", err)
		}
	}
	disk.free.Store(minMove)
	ahead.Add(int64(logInterval))
	log.awaitLine(t, 2, "level=ERROR", "new names are refused", "needed=64MiB")
	if err := s.Write(t.Context(), sign(t, 1, 1, until, 1)); !errors.Is(err, record.ErrFull) {
		t.Errorf("a write of a new name with room for known ones only: %v", err)
	}
	disk.free.Store(1 << 40)
	ahead.Add(int64(logInterval))
	log.awaitLine(t, 3, "level=INFO", "there is room for names again")
	if err := s.Write(t.Context(), sign(t, 1, 1, until, 1)); err != nil {
		t.Fatal(err)
	}
	ahead.Add(int64(logInterval))
	log.awaitLine(t, 4, "level=WARN", "as many names as may be", "names=1")
}
