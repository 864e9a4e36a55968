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

// Down ends every process of the lab, removes everything it made, and restores
// what it changed.
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

// Down takes a lab down by its name, whoever built it and however far that came.
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

// removeEmpty removes the directory of a lab whose builder ended before it wrote
// anything down, and so before it made anything.
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
	// With anything else in it, it is no lab's, or one that has been built meanwhile.
	_ = os.Remove(filepath.Join(dir, stateFile+newSuffix)) // not there, most likely
	return os.Remove(dir)
}

// remove undoes a lab as far as it was made. It goes on after an error, so that
// as little as possible stays, and keeps the record if something did.
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

// removeIfEmpty removes the directories that the last lab leaves behind.
func removeIfEmpty(dirs ...string) {
	for _, dir := range dirs {
		_ = os.Remove(dir) // not empty: somebody needs it
	}
}

// endProcesses ends what runs in the lab's namespaces, its delay line, and the daemons of its
// switches, wherever these are found: once their namespaces have lost their names nobody would
// find them any more. It looks again until there is nothing: a program may just have started
// another.
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

// findDaemons returns the delay line and the daemons of Open vSwitch whose files are in a lab's
// directory.
func findDaemons(dir string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well formed
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

// isSwitch reports whether a command line, as /proc has it, is that of a daemon of Open vSwitch
// whose files are in dir.
func isSwitch(line []byte, dir string) bool {
	program, args, _ := bytes.Cut(line, []byte{0})
	name := filepath.Base(string(program))
	return (name == "ovsdb-server" || name == "ovs-vswitchd") && bytes.Contains(args, []byte("--pidfile="+dir+"/"))
}

// Sweep takes down the ephemeral labs whose owners are gone, as after a test that
// was killed.
func Sweep(ctx context.Context, o Options) error {
	names, err := Names(o.RunDir)
	if err != nil {
		return err
	}
	var errs error
	for _, name := range names {
		l, err := Open(name, o)
		if errors.Is(err, ErrNoLab) {
			_ = removeEmpty(name, o, err) // or somebody is building it just now
			continue
		}
		if err != nil || !l.record.Ephemeral || l.record.Owner.alive() {
			continue
		}
		errs = errors.Join(errs, l.Down(ctx))
	}
	return errs
}
