package testbed

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// idleGroup is a control group whose processes get only processor time that nothing else needs, and
// are preempted at once (cgroup-v2.rst, cpu.idle).
type idleGroup struct{ dir string }

// joinIdle moves a process with all its threads to a new idleGroup. It returns an error if the
// kernel or the process's rights do not permit one.
func joinIdle(pid int) (*idleGroup, error) {
	root, err := cpuGroups()
	if err != nil {
		return nil, err
	}
	g := &idleGroup{filepath.Join(root, "sluice-lab-"+strconv.Itoa(pid))}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, err
	}
	err = g.set("cpu.idle", "1")
	if err == nil {
		err = g.set("cgroup.procs", strconv.Itoa(pid))
	}
	if err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return g, nil
}

func (g *idleGroup) set(name, value string) error {
	return os.WriteFile(filepath.Join(g.dir, name), []byte(value), 0)
}

// remove removes the group, which must be empty.
func (g *idleGroup) remove() error { return os.Remove(g.dir) }

// cpuGroups returns the directory for control groups that share the processors: that of the unified
// hierarchy if it has the controller, and that of the older one otherwise.
func cpuGroups() (string, error) {
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		f := strings.Fields(lines.Text()) // fields: what, where, type, options (proc_pid_mounts(5))
		if len(f) < 4 {
			continue
		}
		switch {
		case f[2] == "cgroup" && slices.Contains(strings.Split(f[3], ","), "cpu"):
			return f[1], nil
		case f[2] == "cgroup2":
			control := filepath.Join(f[1], "cgroup.subtree_control")
			if os.WriteFile(control, []byte("+cpu"), 0) == nil {
				return f[1], nil
			}
		}
	}
	return "", fmt.Errorf("no control groups for processors: %w", errors.ErrUnsupported)
}

// lowerPriority gives the process that leads a session the lowest priority: among the processes of its
// session, and, where the kernel shares processors by session, of its session among others
// (sched(7), "The autogroup feature").
func lowerPriority(pid int) error {
	const lowest = 19
	if err := unix.Setpriority(unix.PRIO_PROCESS, pid, lowest); err != nil {
		return err
	}
	err := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(lowest)), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // This kernel does not share by session.
	}
	return err
}
