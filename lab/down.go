package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/sluice-net/sluice/internal/namespace"
	"github.com/sluice-net/sluice/lab/delayline"
)

// Down ends every process of the lab, removes everything it made, and restores the sysctls it
// changed.
func (l *Lab) Down(ctx context.Context) error {
	release, err := lockDir(l.dir)
	if err != nil {
		return fmt.Errorf("lab %s: %w", l.Name(), err)
	}
	defer release()
	if err := l.remove(ctx); err != nil {
		return fmt.Errorf("lab %s: %w", l.Name(), err)
	}
	return nil
}

// Down takes a lab down by its name. It does not matter which process built the lab, and whether it
// finished.
func Down(ctx context.Context, name string, o Options) error {
	l, err := Open(name, o)
	if errors.Is(err, ErrNoLab) {
		return removeEmpty(name, o, err)
	}
	if err != nil {
		return err
	}
	return l.Down(ctx)
}

// removeEmpty removes the directory of a lab whose builder ended before it wrote its record, and so
// before it made anything.
func removeEmpty(name string, o Options, reason error) error {
	dir := filepath.Join(runDirOr(o.RunDir), name)
	if !namePattern.MatchString(name) {
		return reason
	}
	release, err := lockDir(dir)
	if err != nil {
		return fmt.Errorf("lab %s: %w", name, err)
	}
	defer release()
	// A directory that holds anything else is not a lab's, or another builder uses it by now.
	_ = os.Remove(filepath.Join(dir, stateFile+newSuffix)) // It is most likely not there.
	return os.Remove(dir)
}

// remove removes whatever has been made of the lab. It continues after an error, so that as little
// as possible stays, and then keeps the record.
func (l *Lab) remove(ctx context.Context) error {
	err := l.endProcesses(ctx)
	for _, name := range l.record.Namespaces {
		err = errors.Join(err, namespace.Delete(name))
	}
	err = errors.Join(err, l.tuning.release())
	if err != nil {
		return err
	}
	if err := os.RemoveAll(l.dir); err != nil {
		return err
	}
	removeIfEmpty(l.runDir, filepath.Dir(sysctls[0].file))
	return nil
}

// removeIfEmpty removes the directories that are empty once the last lab is gone.
func removeIfEmpty(dirs ...string) {
	for _, dir := range dirs {
		_ = os.Remove(dir) // It is not empty: other labs use it.
	}
}

// endProcesses ends the programs in the lab's namespaces, its delay line, and the daemons of its
// switches. It looks for the delay line and the daemons by their command lines too, because
// namespaces may have lost their names. It repeats until it finds none, because a program may just
// have started another.
func (l *Lab) endProcesses(ctx context.Context) error {
	for range 10 {
		pids, err := namespace.Members(l.record.Namespaces)
		if err != nil {
			return err
		}
		pids = append(pids, findDaemons(l.dir)...)
		slices.Sort(pids)
		pids = slices.Compact(pids)
		if len(pids) == 0 {
			return nil
		}
		results := make(chan error, len(pids))
		for _, pid := range pids {
			go func() { results <- endProcess(ctx, pid) }()
		}
		for range pids {
			err = errors.Join(err, <-results)
		}
		if err != nil {
			return err
		}
	}
	return errors.New("programs in it keep starting others")
}

// findDaemons returns the process IDs of the delay line and of the Open vSwitch daemons whose files
// are in a lab's directory.
func findDaemons(dir string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // The pattern is well formed.
	delayLine := []byte(delayline.ProcessName + "\x00" + filepath.Join(dir, socketFile) + "\x00")
	var pids []int
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(line, delayLine) && !isSwitch(line, dir) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// isSwitch reports whether a command line, as read from /proc, is that of an Open vSwitch daemon
// whose files are in dir.
func isSwitch(line []byte, dir string) bool {
	program, args, _ := bytes.Cut(line, []byte{0})
	name := filepath.Base(string(program))
	return (name == "ovsdb-server" || name == "ovs-vswitchd") && bytes.Contains(args, []byte("--pidfile="+dir+"/"))
}

// Sweep takes down the ephemeral labs whose owners have ended, as after a test that was killed.
func Sweep(ctx context.Context, o Options) error {
	names, err := Names(o.RunDir)
	if err != nil {
		return err
	}
	var errs error
	for _, name := range names {
		l, err := Open(name, o)
		if errors.Is(err, ErrNoLab) {
			_ = removeEmpty(name, o, err) // It fails if the lab is being built just now.
			continue
		}
		if err != nil || !l.record.Ephemeral || l.record.Owner.alive() {
			continue
		}
		errs = errors.Join(errs, l.Down(ctx))
	}
	return errs
}
