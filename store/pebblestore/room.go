package pebblestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/store"
)

const (
	// DefaultMinFree is the default of Options.MinFree, in bytes.
	DefaultMinFree = 16 << 20
	// LeastMinFree is the least value of Options.MinFree, in bytes: what the database may write
	// besides the log that it has allocated.
	LeastMinFree = 8 << 20
	// reserveBytes is the size of the reserve for a start on a full disk: the database then
	// rewrites its log, and sorts the content of the old one.
	reserveBytes = 8 << 20
	// leastReserve is the least useful size of a reserve.
	leastReserve = 1 << 20
)

// spaceCheck decides whether the file system can be written.
type spaceCheck struct {
	dir  string
	need uint64

	mu      sync.Mutex
	refused bool // result of the last check, after which the next is stricter
}

// check returns the reason why writes are refused, or nil. After a refusal, writes are accepted
// again when half as much more is free. Otherwise writes could alternate with each file of
// another program.
func (r *spaceCheck) check() *store.UnwritableError {
	r.mu.Lock()
	defer r.mu.Unlock()
	need := r.need
	if r.refused {
		need += r.need / 2
	}
	err := unwritable(r.dir, need)
	r.refused = err != nil
	return err
}

// unwritable returns the reason why the file system of a folder cannot be written, or nil.
func unwritable(dir string, need uint64) *store.UnwritableError {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return &store.UnwritableError{Path: dir, Cause: err}
	}
	if s.Flags&unix.ST_RDONLY != 0 {
		return &store.UnwritableError{Path: dir, Cause: syscall.EROFS}
	}
	free := s.Bavail * uint64(s.Bsize)
	if s.Files > 0 && s.Ffree == 0 {
		free = 0 // without inodes no file can be created
	}
	if free < need {
		return &store.UnwritableError{Path: dir, Free: free, Need: need}
	}
	return nil
}

// isDiskFull reports whether an error means that the file system is full.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// asUnwritable converts an error of the disk to the reason why writes are refused.
func asUnwritable(dir string, need uint64, err error) *store.UnwritableError {
	if isDiskFull(err) {
		if full := unwritable(dir, need); full != nil {
			return full
		}
	}
	return &store.UnwritableError{Path: dir, Cause: err}
}

func reserveFile(dir string) string { return filepath.Join(dir, "reserve") }

// releaseReserve removes the reserve if the file system has too little space with it.
func releaseReserve(dir string) error {
	if unwritable(dir, reserveBytes) == nil {
		return nil
	}
	err := os.Remove(reserveFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make room for the start: %w", err)
	}
	folder, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("make room for the start: %w", err)
	}
	defer folder.Close()
	if err := unix.Syncfs(int(folder.Fd())); err != nil { // some file systems release freed space only then
		return fmt.Errorf("make room for the start: %w", err)
	}
	return nil
}

// keepReserve allocates the reserve for the next start, as far as there is space. It reports no
// failure: without a reserve, only a start on a full disk may fail.
func keepReserve(dir string) {
	file := reserveFile(dir)
	var have uint64
	if info, err := os.Stat(file); err == nil {
		have = uint64(info.Size())
	}
	var s unix.Statfs_t
	if have >= reserveBytes || unix.Statfs(dir, &s) != nil {
		return
	}
	size := min(reserveBytes, have+s.Bavail*uint64(s.Bsize))
	if size < have+leastReserve {
		return
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(size)); err != nil && have == 0 {
		_ = os.Remove(file)
	}
}
