// Package folderlock reserves a folder, or a file, for one process.
package folderlock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrBusy means that another process has the lock.
var ErrBusy = errors.New("another process has it")

// name is the name of the file in a folder that is locked.
const name = "lock"

// Take locks a folder, and creates it with the given mode if it does not exist. The lock ends when
// the returned file is closed, or with the process. Take does not wait: if another process has the
// lock, the error wraps ErrBusy.
func Take(dir string, mode fs.FileMode) (*os.File, error) {
	if err := os.MkdirAll(dir, mode); err != nil {
		return nil, err
	}
	return lock(filepath.Join(dir, name), "folder "+dir)
}

// TakeFile locks a file as Take locks a folder. The file need not exist, and its folder may contain
// other files. The lock itself is on a file with the suffix .lock.
func TakeFile(file string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	return lock(file+".lock", file)
}

func lock(file, what string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrBusy
		}
		return nil, errors.Join(fmt.Errorf("%s: %w", what, err), f.Close())
	}
	return f, nil
}
