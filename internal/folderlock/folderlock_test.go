package folderlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/nettest"
)

// A folder is taken once at a time.
func TestTake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	first, err := Take(dir, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Take(dir, 0o700); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), fmt.Sprintf(": %d (%s", os.Getpid(), os.Args[0])) {
		t.Errorf("taken twice: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Take(dir, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

// A file is taken once at a time, beside others of its folder.
func TestTakeFile(t *testing.T) {
	dir := t.TempDir()
	first, err := TakeFile(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := TakeFile(filepath.Join(dir, "state")); !errors.Is(err, ErrBusy) {
		t.Errorf("taken twice: %v", err)
	}
	other, err := TakeFile(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatalf("another file of the folder: %v", err)
	}
	_ = other.Close()
}

// TestTakeNamespace checks that each network namespace is taken once at a time.
func TestTakeNamespace(t *testing.T) {
	dir := t.TempDir()
	take := func(h *nettest.Host, name string) (f *os.File, err error) {
		h.Must(func() error { f, err = TakeNamespace(dir, name); return nil })
		return f, err
	}
	a, b := nettest.NewHost(t), nettest.NewHost(t)
	first, err := take(a, "host")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := take(a, "host"); !errors.Is(err, ErrBusy) {
		t.Errorf("taken twice: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		h    *nettest.Host
		name string
	}{{a, "host"}, {a, "mobile"}, {b, "host"}} {
		f, err := take(c.h, c.name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
}

func TestParseLocks(t *testing.T) {
	const text = `1: POSIX  ADVISORY  WRITE 4021 fe:00:77 1073741824 1073742335
2: FLOCK  ADVISORY  WRITE 12 fe:00:777 0 EOF
3: FLOCK  ADVISORY  WRITE 13 fe:00:77 0 EOF
3: -> FLOCK  ADVISORY  WRITE 14 fe:00:78 0 EOF
4: OFDLCK ADVISORY  READ  -1 00:05:79 0 0
5: FLOCK  ADVISORY  WRITE x fe:00:80 0 EOF
6: FLOCK`
	for inode, want := range map[uint64]int{77: 13, 777: 12, 78: 0, 79: 0, 80: 0, 81: 0} {
		if pid, ok := parseLocks(text, 0xfe00, inode); pid != want || ok != (want != 0) {
			t.Errorf("file %d is locked by %d, %v, want %d", inode, pid, ok, want)
		}
	}
}
