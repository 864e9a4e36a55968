package namespace

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/live"
)

const inFreshRun = "SLUICE_TEST_FRESH_RUN"

// freshRun runs the test once more in a process whose /run is empty and its own,
// as on a machine where nobody has made a named namespace yet. It reports whether
// this is that process.
func freshRun(t *testing.T) bool {
	t.Helper()
	live.Test(t)
	if os.Getenv(inFreshRun) != "" {
		if err := unix.Mount("none", "/run", "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inFreshRun+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// mounts are the mount points at and below Dir.
func mounts(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		if point := strings.Fields(line)[1]; strings.HasPrefix(point, Dir) {
			all = append(all, point)
		}
	}
	return all
}

// startIn starts a process in a namespace, which ends with the test.
func startIn(t *testing.T, name string) (pid int) {
	t.Helper()
	cmd := exec.Command("nsenter", "--net="+Path(name), "--", "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for in := ""; in != "sleep\n"; {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		in = string(text)
	}
	return cmd.Process.Pid
}

func netns(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", append([]string{"netns"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip netns %v: %v: %s", args, err, out)
	}
	return string(out)
}

// TestDeleteAfterTheFirstOfAnother has somebody else make the machine's first
// namespace by ip-netns(8) while one of ours is there.
func TestDeleteAfterTheFirstOfAnother(t *testing.T) {
	if !freshRun(t) {
		return
	}
	if err := Create("ours"); err != nil {
		t.Fatal(err)
	}
	netns(t, "add", "theirs")
	if list := netns(t, "list"); !strings.Contains(list, "ours") || !strings.Contains(list, "theirs") {
		t.Errorf("ip netns lists %q", list)
	}
	if err := Do(Path("ours"), func() error { return nil }); err != nil {
		t.Error(err)
	}
	if err := Delete("ours"); err != nil {
		t.Error(err)
	}
	if list := netns(t, "list"); strings.TrimSpace(list) != "theirs" {
		t.Errorf("ip netns lists %q", list)
	}
	for _, m := range mounts(t) {
		if strings.Contains(m, "ours") {
			t.Errorf("%s is still mounted", m)
		}
	}
}

// TestDeleteBelowOtherMounts deletes namespaces of a directory over which others
// have mounted it again, or something else.
func TestDeleteBelowOtherMounts(t *testing.T) {
	if !freshRun(t) {
		return
	}
	cover := map[string]func() error{
		"itself":        func() error { return unix.Mount(Dir, Dir, "", unix.MS_BIND|unix.MS_REC, "") },
		"itself, plain": func() error { return unix.Mount(Dir, Dir, "", unix.MS_BIND, "") },
		"another":       func() error { return unix.Mount("none", Dir, "tmpfs", 0, "") },
	}
	// What covers in one step stays in the next.
	for _, name := range []string{"itself", "itself, plain", "another", "itself", "itself, plain", "another"} {
		mount := cover[name]
		if err := Create("ours"); err != nil {
			t.Fatal(err)
		}
		inside := startIn(t, "ours")
		if err := unix.Mount("", Dir, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := mount(); err != nil {
				t.Fatal(err)
			}
		}
		if pids, err := Members([]string{"ours"}); err != nil || !slices.Equal(pids, []int{inside}) {
			t.Errorf("%s: processes %v (%v) are in the namespace, %d is", name, pids, err, inside)
		}
		if err := Delete("ours"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if Exists("ours") {
			t.Errorf("%s: the namespace's file is there", name)
		}
		for _, m := range mounts(t) {
			if strings.Contains(m, "ours") {
				t.Errorf("%s: %s is still mounted", name, m)
			}
		}
	}
}
