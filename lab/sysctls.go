package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A userspace switch receives each port through a packet socket of the default
// receive buffer: bursts beyond it are lost. It sends all ports through one of the
// default send buffer: packets that wait in the queues of one port keep those of
// others out. The sysctls are the whole machine's (network namespaces may only read
// them), so all labs share one raise of each: the first makes it, the last takes it
// back.
var buffers = []buffer{{"net.core.rmem_default", "/run/sluice/rmem.json"}, {"net.core.wmem_default", "/run/sluice/wmem.json"}}

// buffer is a sysctl, and the file that records its raise, beside the run directories
// because labs with different ones share it.
type buffer struct{ name, file string }

// bufferBytes is what they are raised to.
const bufferBytes = 16 << 20

func (b buffer) sysctl() string { return "/proc/sys/" + strings.ReplaceAll(b.name, ".", "/") }

type bufferState struct {
	Original string   `json:"original"`
	Labs     []string `json:"labs"` // directories of the labs that hold it
	running  []string // those of them whose daemons run
}

func (l *Lab) holdBuffers(context.Context) error {
	if len(l.plan.Topology.Switches) == 0 {
		return nil
	}
	for _, b := range buffers {
		if err := l.hold(b); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) hold(b buffer) error {
	return b.change(func(s *bufferState) error {
		now, err := os.ReadFile(b.sysctl())
		if err != nil {
			return err
		}
		if s.hold(l.dir, strings.TrimSpace(string(now))) {
			l.logf("%s of this machine is %d while a lab is up (was %s)", b.name, bufferBytes, s.Original)
		}
		l.originals[b.name] = s.Original
		return nil
	}, func(*bufferState) string { return fmt.Sprint(bufferBytes) })
}

func (l *Lab) releaseBuffers() error {
	var errs []error
	for _, b := range buffers {
		errs = append(errs, b.change(func(s *bufferState) error {
			s.Labs = slices.DeleteFunc(s.Labs, func(d string) bool { return d == l.dir })
			s.forgetGone()
			return nil
		}, func(s *bufferState) string {
			if len(s.Labs) > 0 || s.Original == "" {
				return ""
			}
			l.logf("%s of this machine is %s again", b.name, s.Original)
			return s.Original
		}))
	}
	return errors.Join(errs...)
}

// hold adds a lab. It reports whether the lab is the first. An original that is
// known stays: it outlives labs that were killed and never gave the raise back.
func (s *bufferState) hold(dir, now string) (first bool) {
	s.forgetGone()
	first = len(s.Labs) == 0
	if s.Original == "" {
		s.Original = now
	}
	s.Labs = append(s.Labs, dir)
	return first
}

// forgetGone drops labs whose record is no longer there, unless their daemons are.
func (s *bufferState) forgetGone() {
	s.Labs = slices.DeleteFunc(s.Labs, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, stateFile))
		return errors.Is(err, os.ErrNotExist) && !slices.Contains(s.running, dir)
	})
}

// change changes the recorded state under its lock and then sets the
// sysctl to what value returns, if anything. The record is written first when it
// grows, so that a crash in between leaves the original known.
func (b buffer) change(change func(*bufferState) error, value func(*bufferState) string) error {
	f, err := b.lock()
	if err != nil {
		return err
	}
	defer f.Close()
	var s bufferState
	if err := json.NewDecoder(f).Decode(&s); err != nil && !errors.Is(err, io.EOF) { // EOF: it is new
		return fmt.Errorf("%s: %w", b.file, err)
	}
	s.adopt(holders(b.name))
	if err := change(&s); err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := overwrite(f, text); err != nil {
		return err
	}
	if v := value(&s); v != "" {
		if err := os.WriteFile(b.sysctl(), []byte(v), 0o644); err != nil {
			return fmt.Errorf("%s = %s: %w", b.name, v, err)
		}
	}
	if len(s.Labs) == 0 {
		return os.Remove(b.file)
	}
	return nil
}

// overwrite writes the text and then cuts off what is left of a longer one, so that
// a process that is killed in between leaves a record that can be read.
func overwrite(f *os.File, text []byte) error {
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(text)))
}

// lock opens and locks the record. The file goes with its last holder, so
// after the lock is had it must still be the one of that name.
func (b buffer) lock() (*os.File, error) {
	for {
		if err := os.MkdirAll(filepath.Dir(b.file), 0o755); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(b.file, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
		if errors.Is(err, os.ErrNotExist) {
			continue // the last lab took the directory with it
		}
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		opened, err1 := f.Stat()
		named, err2 := os.Stat(b.file)
		if err1 == nil && err2 == nil && os.SameFile(opened, named) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}
