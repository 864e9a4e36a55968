// Package folderlock keeps a folder, or a file, to one process.
package folderlock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrBusy is for what another process has.
var ErrBusy = errors.New("another process has it")

// name is that of the file that is locked.
const name = "lock"

// Take takes a folder, which is made if need be, with a mode. It is given back by closing what Take gives, or with the
// process. The error wraps ErrBusy, or is the system's.
func Take(dir string, mode fs.FileMode) (*os.File, error) {
	if err := os.MkdirAll(dir, mode); err != nil {
		return nil, err
	}
	return lock(filepath.Join(dir, name), "folder "+dir)
}

// TakeFile takes a file that need not be there, in a folder that others use as well, as Take does.
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
