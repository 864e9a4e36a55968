package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A userspace switch receives each port through a packet socket of the default
// receive buffer; bursts beyond it are lost. The sysctl is the whole machine's
// (network namespaces may only read it), so all labs share one raise: the first
// makes it, the last takes it back.
const (
	receiveBuffer       = 16 << 20
	receiveBufferSysctl = "/proc/sys/net/core/rmem_default"
)

// buffersFile records the raise, beside the run directories because labs with
// different ones share it.
const buffersFile = "/run/sluice/rmem.json"

type bufferState struct {
	Original string   `json:"original"`
	Labs     []string `json:"labs"` // directories of the labs that hold it
}

func (l *Lab) holdReceiveBuffers(context.Context) error {
	if len(l.plan.Topology.Switches) == 0 {
		return nil
	}
	return changeBuffers(func(s *bufferState) error {
		now, err := os.ReadFile(receiveBufferSysctl)
		if err != nil {
			return err
		}
		if s.hold(l.dir, strings.TrimSpace(string(now))) {
			l.logf("net.core.rmem_default of this machine is %d while a lab is up (was %s)", receiveBuffer, s.Original)
		}
		return nil
	}, func(*bufferState) string { return fmt.Sprint(receiveBuffer) })
}

func (l *Lab) releaseReceiveBuffers() error {
	return changeBuffers(func(s *bufferState) error {
		s.Labs = slices.DeleteFunc(s.Labs, func(d string) bool { return d == l.dir })
		s.forgetGone()
		return nil
	}, func(s *bufferState) string {
		if len(s.Labs) > 0 || s.Original == "" {
			return ""
		}
		l.logf("net.core.rmem_default of this machine is %s again", s.Original)
		return s.Original
	})
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

// forgetGone drops labs whose record is no longer there.
func (s *bufferState) forgetGone() {
	s.Labs = slices.DeleteFunc(s.Labs, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, stateFile))
		return errors.Is(err, os.ErrNotExist)
	})
}

// changeBuffers changes the recorded state under its lock and then sets the
// sysctl to what value returns, if anything. The record is written first when it
// grows, so that a crash in between leaves the original known.
func changeBuffers(change func(*bufferState) error, value func(*bufferState) string) error {
	f, err := lockBuffers()
	if err != nil {
		return err
	}
	defer f.Close()
	var s bufferState
	if b, err := os.ReadFile(buffersFile); err == nil && len(b) > 0 {
		if err := json.Unmarshal(b, &s); err != nil {
			return fmt.Errorf("%s: %w", buffersFile, err)
		}
	}
	if err := change(&s); err != nil {
		return err
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(buffersFile, b, 0o644); err != nil {
		return err
	}
	if v := value(&s); v != "" {
		if err := os.WriteFile(receiveBufferSysctl, []byte(v), 0o644); err != nil {
			return fmt.Errorf("net.core.rmem_default = %s: %w", v, err)
		}
	}
	if len(s.Labs) == 0 {
		return os.Remove(buffersFile)
	}
	return nil
}

// lockBuffers opens and locks the record. The file goes with its last holder, so
// after the lock is had it must still be the one of that name.
func lockBuffers() (*os.File, error) {
	for {
		if err := os.MkdirAll(filepath.Dir(buffersFile), 0o755); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(buffersFile, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
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
		named, err2 := os.Stat(buffersFile)
		if err1 == nil && err2 == nil && os.SameFile(opened, named) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}
