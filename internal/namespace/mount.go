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

// prepareDir makes Dir a shared mount point, as the first `ip netns add` on a machine does. If Dir
// is a plain directory, prepareDir mounts Dir over itself. Namespaces that were mounted in it
// before are then hidden below the new mount, and cannot be removed by their names.
func prepareDir() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	fd, err := unix.Open(Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", Dir, err)
	}
	defer unix.Close(fd)
	// The lock is the one that ip-netns(8) takes. Without it, two processes that both find no mount
	// would both create one.
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", Dir, err)
	}
	err = unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) { // EINVAL: Dir is not a mount point yet
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

// Delete removes a named namespace. It returns nil if the namespace does not exist.
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

// mounted returns the namespaces that are mounted under one of the names, even if something else is
// mounted over them. Each is in the form of the link /proc/PID/ns/net.
func mounted(names []string) map[string]bool {
	text, _ := os.ReadFile("/proc/self/mountinfo") // always exists
	all := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // the fourth field is the namespace, and the fifth its mount point
		if len(f) > 4 && strings.HasPrefix(f[3], "net:[") && slices.Contains(names, filepath.Base(f[4])) {
			all[f[3]] = true
		}
	}
	return all
}

// unmount removes the uppermost mount of a path. It returns nil if there is none.
func unmount(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// removeHidden removes the file of a namespace that is still a mount point below a later mount of
// Dir. It does so in a mount namespace of its own, where it can remove the upper mounts. When the
// file is deleted there, the kernel removes its mounts in all other mount namespaces.
func removeHidden(path string) error {
	return onThrowAwayThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		// Below each upper mount there may be a file with this name or none. There is none, for
		// instance, if the mount is another program's that covers everything.
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
