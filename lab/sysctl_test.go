package lab_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

// readSysctl returns the machine's present value of a sysctl, given the name of its record.
func readSysctl(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(map[string]string{
		"rmem": "/proc/sys/net/core/rmem_default", "wmem": "/proc/sys/net/core/wmem_default", "autogroup": "/proc/sys/kernel/sched_autogroup_enabled",
		"arp2": "/proc/sys/net/ipv4/neigh/default/gc_thresh2", "arp3": "/proc/sys/net/ipv4/neigh/default/gc_thresh3",
		"nd2": "/proc/sys/net/ipv6/neigh/default/gc_thresh2", "nd3": "/proc/sys/net/ipv6/neigh/default/gc_thresh3",
	}[name])
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestSysctlsAreRestored checks that the sysctls that labs need are set while any lab is up, and
// are restored once no lab is.
func TestSysctlsAreRestored(t *testing.T) {
	needsRoot(t)
	want := map[string]string{"rmem": "16777216", "wmem": "16777216", "autogroup": "0", "arp2": "65536", "arp3": "131072", "nd2": "65536", "nd3": "131072"}
	held := func(name string) bool {
		_, err := os.Stat("/run/sluice/" + name + ".json")
		return !errors.Is(err, os.ErrNotExist)
	}
	before := map[string]string{} // values of the sysctls that no other lab has changed
	for name := range want {
		if value := readSysctl(t, name); !held(name) {
			before[name] = value
		}
	}
	o := lab.Options{RunDir: t.TempDir(), ByThread: true}
	var labs []*lab.Lab
	for i := range 2 {
		l, err := lab.Up(testContext(t), lab.Line(fmt.Sprintf("sysctl%d-%d", os.Getpid(), i), 1, delayline.Params{}), o)
		if err != nil {
			t.Fatal(err)
		}
		labs = append(labs, l)
	}
	hold := func(when string) {
		t.Helper()
		for name, value := range want {
			if got := readSysctl(t, name); got != value {
				t.Errorf("%s: %s is %s, want %s", when, name, got, value)
			}
		}
	}
	hold("with two labs up")
	if err := labs[0].Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	hold("with a lab still up")
	if err := labs[1].Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for name, value := range before {
		if got := readSysctl(t, name); !held(name) && got != value {
			t.Errorf("no lab holds %s, and it is %s, not %s again", name, got, value)
		}
	}
}

// recorded fails the test if the machine's record does not name a lab.
func recorded(t *testing.T, lab string) {
	t.Helper()
	record, err := os.ReadFile("/run/sluice/rmem.json")
	if err != nil || !strings.Contains(string(record), lab) {
		t.Errorf("lab %s is up and not recorded: %s, %v", lab, record, err)
	}
}

const otherRunDir = "SLUICE_TEST_OTHER_RUN"

// TestOtherRunHelper is not a test: it is a lab in a mount namespace that has a /run of its own and
// does not see the run directory of the test's lab.
func TestOtherRunHelper(t *testing.T) {
	hidden := os.Getenv(otherRunDir)
	if hidden == "" {
		t.Skip("only for TestLastLabOfTheMachineRestoresSysctls")
	}
	for _, dir := range []string{"/run", hidden} {
		if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	l, err := lab.Up(testContext(t), lab.Line("other"+itoa(os.Getpid()), 1, delayline.Params{}), lab.Options{RunDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("up")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // The end of the input is a signal as well.
	if err := l.Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

// TestLastLabOfTheMachineRestoresSysctls takes down the lab that came up first and cannot see that
// another one is still up. It checks that the sysctls stay changed.
func TestLastLabOfTheMachineRestoresSysctls(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestOtherRunHelper$")
	cmd.Env = append(os.Environ(), otherRunDir+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "up\n" {
		t.Errorf("the helper says %q, %v", line, err)
	}
	l, err := lab.Up(testContext(t), lab.Line("mine"+itoa(os.Getpid()), 1, delayline.Params{}), lab.Options{RunDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	recorded(t, "other"+itoa(cmd.Process.Pid))
	_ = in.Close()
	_, _ = lines.ReadString(0)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the other lab: %v", err)
	}
	if got := readSysctl(t, "rmem"); got != "16777216" {
		t.Errorf("rmem_default is %s with a lab still up", got)
	}
	recorded(t, filepath.Join(dir, l.Name()))
	if err := l.Down(testContext(t)); err != nil {
		t.Error(err)
	}
}

// TestRelativeRunDirectory builds a lab whose directory is named relative to the working directory,
// and takes it down from another one.
func TestRelativeRunDirectory(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	t.Chdir(dir)
	l, err := lab.Up(testContext(t), lab.Line("rel"+itoa(os.Getpid()), 1, delayline.Params{}), lab.Options{RunDir: "labs"})
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("/")
	if err := lab.Down(testContext(t), l.Name(), lab.Options{RunDir: filepath.Join(dir, "labs")}); err != nil {
		t.Error(err)
	}
}
