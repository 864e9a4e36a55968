package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sysctls lists the sysctls that labs change, each for a reason.
//
// A userspace switch receives each port through a packet socket with the default receive buffer,
// and loses longer bursts. It sends to all ports through one socket with the default send buffer,
// so packets in the queue of one port keep out those of others. All hosts share one neighbour table
// of ARP and one of ND, each of 1,024 entries. If a table is full, a packet to a further neighbour
// is lost, and so is a packet to a neighbour whose entry another host has displaced. How processors
// are shared is changed for labs with Options.ByThread.
//
// The sysctls apply to the whole machine (network namespaces may only read them), so all labs share
// one change of each: the first lab makes it, the last one undoes it.
var sysctls = []sysctl{
	{"net.core.rmem_default", "16777216", "/run/sluice/rmem.json"},
	{"net.core.wmem_default", "16777216", "/run/sluice/wmem.json"},
	{"net.ipv4.neigh.default.gc_thresh2", "65536", "/run/sluice/arp2.json"},
	{"net.ipv4.neigh.default.gc_thresh3", "131072", "/run/sluice/arp3.json"},
	{"net.ipv6.neigh.default.gc_thresh2", "65536", "/run/sluice/nd2.json"},
	{"net.ipv6.neigh.default.gc_thresh3", "131072", "/run/sluice/nd3.json"},
	autogroup,
}

var autogroup = sysctl{"kernel.sched_autogroup_enabled", "0", "/run/sluice/autogroup.json"}

// sysctl is a sysctl with its value while a lab is up, and the file that records the machine's own
// value. The file is beside the run directories, because labs with different run directories share
// it.
type sysctl struct{ name, value, file string }

// valueWhileUp returns the value to set while a lab is up. It never lowers a limit of the machine.
func (x sysctl) valueWhileUp(original string) string {
	was, err1 := strconv.Atoi(original)
	ours, err2 := strconv.Atoi(x.value)
	if x != autogroup && err1 == nil && err2 == nil && was > ours {
		return original
	}
	return x.value
}

func (x sysctl) path() string { return "/proc/sys/" + strings.ReplaceAll(x.name, ".", "/") }

type sysctlState struct {
	Original string   `json:"original"`
	Labs     []string `json:"labs"` // directories of the labs that have changed it
	running  []string // those of them whose daemons run
}

// tuning holds what a lab has changed of the machine's sysctls.
type tuning struct {
	dir       string            // the lab's directory
	originals map[string]string // the machine's own values of the sysctls that the lab has changed
	logf      func(string, ...any)
}

// hold sets the sysctls. It changes how processors are shared only with byThread.
func (t *tuning) hold(byThread bool) error {
	for _, x := range sysctls {
		if _, err := os.Stat(x.path()); x == autogroup && !byThread || errors.Is(err, os.ErrNotExist) {
			continue // It was not requested, or the kernel does not have it, as without IPv6.
		}
		if err := t.set(x); err != nil {
			return err
		}
	}
	return nil
}

func (t *tuning) set(x sysctl) error {
	return x.change(func(s *sysctlState) error {
		now, err := os.ReadFile(x.path())
		if err != nil {
			return err
		}
		if s.hold(t.dir, strings.TrimSpace(string(now))) {
			t.logf("%s of this machine is %s while a lab is up (was %s)", x.name, x.valueWhileUp(s.Original), s.Original)
		}
		t.originals[x.name] = s.Original
		return nil
	}, func(s *sysctlState) string { return x.valueWhileUp(s.Original) })
}

// release restores the sysctls unless other labs need them.
func (t *tuning) release() error {
	var errs []error
	for _, x := range sysctls {
		errs = append(errs, x.change(func(s *sysctlState) error {
			s.Labs = slices.DeleteFunc(s.Labs, func(d string) bool { return d == t.dir })
			s.removeStale()
			return nil
		}, func(s *sysctlState) string {
			if len(s.Labs) > 0 || s.Original == "" {
				return ""
			}
			t.logf("%s of this machine is %s again", x.name, s.Original)
			return s.Original
		}))
	}
	return errors.Join(errs...)
}

// hold adds a lab, and reports whether it is the first. It keeps an original value that is
// recorded, because labs that were killed have not restored it.
func (s *sysctlState) hold(dir, now string) (first bool) {
	s.removeStale()
	first = len(s.Labs) == 0
	if s.Original == "" {
		s.Original = now
	}
	s.Labs = append(s.Labs, dir)
	return first
}

// removeStale drops labs that have neither a record nor a daemon that runs.
func (s *sysctlState) removeStale() {
	s.Labs = slices.DeleteFunc(s.Labs, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, stateFile))
		return errors.Is(err, os.ErrNotExist) && !slices.Contains(s.running, dir)
	})
}

// change changes the recorded state under its lock, and then sets the sysctl to what value returns,
// unless that is empty. If the record grows it is written first, so that a crash in between does
// not lose the original value.
func (x sysctl) change(change func(*sysctlState) error, value func(*sysctlState) string) error {
	f, err := x.lock()
	if err != nil {
		return err
	}
	defer f.Close()
	var s sysctlState
	if err := json.NewDecoder(f).Decode(&s); err != nil && !errors.Is(err, io.EOF) { // A new file is empty.
		return fmt.Errorf("%s: %w", x.file, err)
	}
	s.adopt(holders(x.name))
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
		if err := os.WriteFile(x.path(), []byte(v), 0o644); err != nil {
			return fmt.Errorf("%s = %s: %w", x.name, v, err)
		}
	}
	if len(s.Labs) == 0 {
		return os.Remove(x.file)
	}
	return nil
}

// overwrite writes the text and then truncates the file, so that a process that is killed in
// between leaves a record that can be read.
func overwrite(f *os.File, text []byte) error {
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(text)))
}

// lock opens and locks the record. The last lab removes the file, so lock checks that the file that
// it has locked still has its name.
func (x sysctl) lock() (*os.File, error) {
	for {
		if err := os.MkdirAll(filepath.Dir(x.file), 0o755); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(x.file, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
		if errors.Is(err, os.ErrNotExist) {
			continue // The last lab has removed the directory as well.
		}
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		opened, err1 := f.Stat()
		named, err2 := os.Stat(x.file)
		if err1 == nil && err2 == nil && os.SameFile(opened, named) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}
