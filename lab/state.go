package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultRunDir is the directory where labs are recorded unless Options name another one.
const DefaultRunDir = "/run/sluice/lab"

const (
	stateFile  = "state.json"
	newSuffix  = ".new" // suffix of a file that is being written
	socketFile = "delayline.sock"
	logFile    = "delayline.log"
)

// record is written before anything of a lab is made. It holds enough to find and remove all of the
// lab without the process that made it.
type record struct {
	Version    int       `json:"version"`
	Created    time.Time `json:"created"`
	Owner      process   `json:"owner"`
	Ephemeral  bool      `json:"ephemeral,omitempty"` // The lab is removed once its owner has ended.
	Complete   bool      `json:"complete"`
	Shaper     string    `json:"shaper"`
	Namespaces []string  `json:"namespaces"`
	Plan       plan      `json:"plan"`
}

func writeRecord(dir string, r record) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	temp := filepath.Join(dir, stateFile+newSuffix)
	if err := os.WriteFile(temp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(dir, stateFile))
}

func readRecord(dir string) (record, error) {
	var r record
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s: %w", filepath.Join(dir, stateFile), err)
	}
	return r, nil
}

// ErrNoLab is returned for a lab that is not up.
var ErrNoLab = errors.New("no such lab is up")

// lockDir takes the lab's lock, which the builder holds while it builds. The kernel releases it
// when the process ends, so that a crash leaves no lock.
func lockDir(dir string) (release func(), err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoLab
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("another process is building or removing it: %w", err)
	}
	return func() {
		// Closing alone is not enough: a child that another goroutine starts has a copy of the
		// descriptor between its fork and its exec, and with it the lock.
		_ = unix.Flock(fd, unix.LOCK_UN)
		_ = unix.Close(fd)
	}, nil
}

// Names returns the labs that are recorded in a run directory, including those left by a crash.
func Names(runDir string) ([]string, error) {
	entries, err := os.ReadDir(runDirOr(runDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// runDirOr returns the run directory as an absolute path, because daemons change their working
// directory and other programs have another one.
func runDirOr(dir string) string {
	if dir == "" {
		return DefaultRunDir
	}
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir // Without a working directory no relative path exists.
}
