package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// prepareDir makes Dir a shared mount point, as the first `ip netns add` of a
// machine does. One that finds a plain directory mounts it over itself: what was
// mounted in it before is then hidden beneath, and cannot be removed by its name.
func prepareDir() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	fd, err := unix.Open(Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", Dir, err)
	}
	defer unix.Close(fd)
	// The lock is ip-netns(8)'s own: two that both find no mount would make two.
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", Dir, err)
	}
	err = unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) { // EINVAL: it is no mount point yet
		return wrap("share", err)
	}
	if err := unix.Mount(Dir, Dir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return wrap("mount", err)
	}
	return wrap("share", unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, ""))
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", what, Dir, err)
}

// Delete removes a named namespace. One that does not exist is no error.
func Delete(name string) error {
	err := unmount(Path(name))
	if err == nil {
		err = os.Remove(Path(name))
	}
	if len(mounted([]string{name})) > 0 {
		err = removeHidden(Path(name))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return nil
}

// mounted returns the namespaces that are mounted under one of the names, whatever
// else is mounted over them: each as /proc/PID/ns/net has it.
func mounted(names []string) map[string]bool {
	text, _ := os.ReadFile("/proc/self/mountinfo") // our own is always there
	all := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // the fourth is the namespace, the fifth where it is mounted
		if len(f) > 4 && strings.HasPrefix(f[3], "net:[") && slices.Contains(names, filepath.Base(f[4])) {
			all[f[3]] = true
		}
	}
	return all
}

// unmount removes the uppermost mount of a path. No mount there is no error.
func unmount(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// removeHidden removes a namespace's file that is still a mount point below a
// later mount of Dir. It does so in a mount namespace of its own, where the mounts
// on top can be taken away: the kernel removes the mounts of a file that is
// deleted in all the others.
func removeHidden(path string) error {
	return onThrowAwayThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		// Each mount on top may hold a file of the name, or none: that of something
		// else, mounted over all, does not.
		removed := error(os.ErrNotExist)
		for {
			for unix.Unmount(path, unix.MNT_DETACH) == nil {
			}
			if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
				removed = err
			}
			if unix.Unmount(Dir, unix.MNT_DETACH) != nil {
				return removed
			}
		}
	})
}
