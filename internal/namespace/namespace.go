package namespace

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is the directory in which named network namespaces are mounted, as in ip-netns(8).
const Dir = "/run/netns"

// Path returns the file of a named namespace.
func Path(name string) string { return filepath.Join(Dir, name) }

// Current returns the name of the namespace that the calling thread is in, or "" if it has none. If
// it has several names, Current returns the first in alphabetical order.
func Current() string {
	var own, named unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &own); err != nil {
		return ""
	}
	for _, name := range List("") {
		if unix.Stat(Path(name), &named) == nil && named.Dev == own.Dev && named.Ino == own.Ino {
			return name
		}
	}
	return ""
}

// Do runs f on an OS thread that is in the namespace at path. An empty path means the caller's
// namespace. f must not hand work to other goroutines. The thread ends afterwards and is not used
// again, so that no other goroutine can run in the namespace by mistake.
func Do(path string, f func() error) error {
	if path == "" {
		return f()
	}
	return onThrowAwayThread(func() error {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("namespace %s: %w", path, err)
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace %s: %w", path, err)
		}
		return f()
	})
}

// onThrowAwayThread runs f on a thread that is used for nothing else. This is never the process's
// main thread, because that thread cannot end, and because other programs take its namespace for
// that of the process.
func onThrowAwayThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			result <- onThrowAwayThread(f)
			runtime.UnlockOSThread()
			return
		}
		result <- f() // the thread stays locked, so it ends with the goroutine
	}()
	return <-result
}

// Create creates a named namespace, whose loopback interface is down.
func Create(name string) error {
	if err := prepareDir(); err != nil {
		return err
	}
	f, err := os.OpenFile(Path(name), os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	_ = f.Close()
	err = onThrowAwayThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		self := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		return unix.Mount(self, Path(name), "", unix.MS_BIND, "")
	})
	if err != nil {
		_ = os.Remove(Path(name))
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return nil
}

// Anonymous runs f in a new namespace without a name, which ends when f returns.
func Anonymous(f func() error) error {
	return onThrowAwayThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		return f()
	})
}

// Exists reports whether a namespace with that name exists.
func Exists(name string) bool {
	_, err := os.Lstat(Path(name))
	return err == nil
}

// Members returns the processes, other than the caller, that are in one of the
// named namespaces.
func Members(names []string) ([]int, error) {
	wanted := mounted(names)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscanf(e.Name(), "%d", &pid); err != nil || pid == os.Getpid() {
			continue
		}
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && wanted[ns] {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// List returns the names of all namespaces that start with a prefix.
func List(prefix string) []string {
	entries, _ := os.ReadDir(Dir) // no directory: no namespaces
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names
}
