package nameservice

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const onSmallDisk = "SLUICE_TEST_SMALL_DISK"

// smallDisk runs the test once more in a process of its own that sees a small file system, and
// returns the mount point there. In the first process it returns "".
func smallDisk(t *testing.T) string {
	t.Helper()
	live.Test(t)
	if dir := os.Getenv(onSmallDisk); dir != "" {
		if err := unix.Mount("sluice-test", dir, "tmpfs", 0, "size=128m"); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), onSmallDisk+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return ""
}

// fill takes all free space of a disk, and returns a function that frees it.
func fill(t *testing.T, disk string) (free func()) {
	t.Helper()
	file := filepath.Join(disk, "somebody-elses")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
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

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A service that is started on a full disk logs that once, and runs as soon as there is room. What
// it has stored before is there then.
func TestFullDisk(t *testing.T) {
	disk := smallDisk(t)
	if disk == "" {
		return
	}
	at := netip.MustParseAddrPort("127.78.0.11:5001")
	r, err := record.Sign(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), 1, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	client, err := gnrs.Dial(at)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, known := range []bool{false, true} {
		free, log := fill(t, disk), &logText{}
		s := New(Options{Dir: filepath.Join(disk, "names"), Listen: at, Log: slog.New(slog.NewTextHandler(log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		eventually(t, "the service logs that it waits", func() bool { return log.String() != "" })
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "waits for room") || !strings.Contains(text, "the file system is full; make room") {
			t.Errorf("a start on a full disk logs %q", text)
		}
		if listen := s.Status().Listen; listen != "" {
			t.Errorf("a service on a full disk listens at %s", listen)
		}
		free()
		eventually(t, "the service runs when there is room", func() bool { return s.Status().Listen != "" })
		if known {
			if found, err := client.Lookup(t.Context(), r.GUID()); err != nil || found.Number != r.Number {
				t.Errorf("the name is not found after a start on a full disk: %v", err)
			}
		} else if err := client.Write(t.Context(), r); err != nil {
			t.Errorf("a write with room again: %v", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
