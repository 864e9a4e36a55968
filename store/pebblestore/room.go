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
	// DefaultMinFree is how much of its file system the store leaves to others unless
	// told otherwise, in bytes.
	DefaultMinFree = 16 << 20
	// LeastMinFree is the least that it can be told, in bytes: what the database may write
	// besides the log that it has allocated.
	LeastMinFree = 8 << 20
	// reserveBytes is what is kept back for a start on a full disk: the database writes its
	// log anew then, and sorts what was in the old one.
	reserveBytes = 8 << 20
	// leastReserve is the least that is worth to be kept back.
	leastReserve = 1 << 20
)

// room decides whether the file system takes writes.
type room struct {
	dir  string
	need uint64

	mu      sync.Mutex
	refuses bool // as of the last look, which makes the next one stricter
}

// look asks the file system, and returns why writes are refused, or nil. Writes that are
// refused stay so until half as much again is free: they would come and go with each file
// of somebody else's otherwise.
func (r *room) look() *store.UnwritableError {
	r.mu.Lock()
	defer r.mu.Unlock()
	need := r.need
	if r.refuses {
		need += r.need / 2
	}
	err := unwritable(r.dir, need)
	r.refuses = err != nil
	return err
}

// unwritable returns why the file system of a folder takes no writes, or nil.
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
		free = 0 // without inodes no file can be made
	}
	if free < need {
		return &store.UnwritableError{Path: dir, Free: free, Need: need}
	}
	return nil
}

// noRoom reports whether an error is that of a full file system.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// cause returns an error of the disk as the reason for which writes are refused.
func cause(dir string, need uint64, err error) *store.UnwritableError {
	if noRoom(err) {
		if full := unwritable(dir, need); full != nil {
			return full
		}
	}
	return &store.UnwritableError{Path: dir, Cause: err}
}

func reserveFile(dir string) string { return filepath.Join(dir, "reserve") }

// releaseReserve gives back what is kept back if the file system has no room without it.
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
	if err := unix.Syncfs(int(folder.Fd())); err != nil { // where what was freed is not given out at once
		return fmt.Errorf("make room for the start: %w", err)
	}
	return nil
}

// keepReserve allocates what the next start may need, as far as there is room for it. It
// does not fail: without a reserve a start on a full disk may.
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
