// Package folderlock reserves a folder, a file, or a network namespace, for one process.
package folderlock

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

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

// TakeNamespace locks the calling thread's network namespace, as Take locks a folder, for programs
// that configure the same things in it. name identifies these things. The lock is on a file of dir,
// which only root can open, and which stays.
func TakeNamespace(dir, name string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	return lock(filepath.Join(dir, fmt.Sprintf("%s-%d.lock", name, st.Ino)), name+" of this network namespace")
}

func lock(file, what string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = busy(f)
		}
		return nil, errors.Join(fmt.Errorf("%s: %w", what, err), f.Close())
	}
	return f, nil
}

// busy returns ErrBusy with the process that has the lock of a file, if that can be found out.
func busy(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return ErrBusy
	}
	locks, _ := os.ReadFile("/proc/locks") // without it the process stays unknown
	pid, ok := parseLocks(string(locks), st.Dev, st.Ino)
	if !ok {
		return ErrBusy
	}
	command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // the process may have ended
	text := strings.ToValidUTF8(string(bytes.ReplaceAll(bytes.TrimRight(command[:min(len(command), maxCommand)], "\x00"), []byte{0}, []byte{' '})), "?")
	return fmt.Errorf("%w: %d (%s)", ErrBusy, pid, text)
}

// maxCommand is the length in bytes to which a command is cut in errors.
const maxCommand = 200

// parseLocks finds the process that has a lock of the kind flock on a file, in the text of
// /proc/locks. Its lines are like "1: FLOCK ADVISORY WRITE 4021 fe:00:10412133 0 EOF".
func parseLocks(text string, dev, inode uint64) (pid int, ok bool) {
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), inode)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != file {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		return pid, err == nil && pid > 0
	}
	return 0, false
}
