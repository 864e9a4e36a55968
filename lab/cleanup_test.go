package lab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/namespace"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

func itoa(n int) string { return strconv.Itoa(n) }

// leftovers lists everything on the machine that bears a lab's name or works in its directory:
// namespaces, mounts, processes, files. It ignores other labs, which may be up.
func leftovers(t *testing.T, runDir, name string) []string {
	t.Helper()
	var all []string
	namespaces, err := filepath.Glob("/run/netns/sluice-" + name + "-*")
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, namespaces...)
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "sluice-"+name+"-") {
			all = append(all, "mount "+line)
		}
	}
	dir := filepath.Join(runDir, name)
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range commands {
		if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), dir+"/") {
			all = append(all, file+" "+strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		all = append(all, dir)
	}
	if b, err := os.ReadFile("/run/sluice/rmem.json"); err == nil && strings.Contains(string(b), dir) {
		all = append(all, "receive buffers held: "+string(b))
	}
	return all
}

func rootLinks(t *testing.T) int {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	return len(links)
}

func needsRoot(t *testing.T) {
	t.Helper()
	live.Test(t)
}

func TestDownLeavesNothing(t *testing.T) {
	needsRoot(t)
	ctx, before := testContext(t), rootLinks(t)
	o := lab.Options{RunDir: t.TempDir()}
	topology := lab.WAN("leak"+itoa(os.Getpid()), lab.WANOptions{})
	l, err := lab.Up(ctx, topology, o)
	if err != nil {
		t.Fatal(err)
	}
	if n := rootLinks(t); n != before {
		t.Errorf("the machine had %d interfaces and has %d with the lab up", before, n)
	}
	if len(leftovers(t, o.RunDir, l.Name())) < 8 {
		t.Error("the test does not see the lab: it could not see what is left of it")
	}
	if _, err := lab.Up(ctx, topology, o); err == nil || !strings.Contains(err.Error(), "sluice-lab down") {
		t.Errorf("the same lab twice: %v", err)
	}
	// Down also ends a program that somebody left running on a host.
	if err := l.Host("client").Command(context.Background(), "sh", "-c", "sleep 600 & ").Run(); err != nil {
		t.Fatal(err)
	}
	if err := lab.Down(ctx, l.Name(), o); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(t, o.RunDir, l.Name()); len(left) > 0 {
		t.Errorf("left over: %s", strings.Join(left, "\n"))
	}
	if n := rootLinks(t); n != before {
		t.Errorf("the machine had %d interfaces and has %d", before, n)
	}
	if err := lab.Down(ctx, l.Name(), o); !errors.Is(err, lab.ErrNoLab) {
		t.Errorf("taken down twice: %v", err)
	}
}

// TestDownWithoutNamespaces removes the names of a lab's namespaces before the lab is taken down,
// as "ip -all netns delete" does, and checks that its switches are ended all the same.
func TestDownWithoutNamespaces(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	ctx, o := testContext(t), lab.Options{RunDir: t.TempDir()}
	l, err := lab.Up(ctx, lab.Line("unnamed"+itoa(os.Getpid()), 2, delayline.Params{}), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range namespace.List("sluice-" + l.Name() + "-") {
		if err := namespace.Delete(name); err != nil {
			t.Error(err)
		}
	}
	if err := lab.Down(ctx, l.Name(), o); err != nil {
		t.Error(err)
	}
	if left := leftovers(t, o.RunDir, l.Name()); len(left) > 0 {
		t.Errorf("left over: %s", strings.Join(left, "\n"))
	}
}

// TestStrangersAreLeftAlone builds a lab where somebody else's namespace has a name that the lab
// needs.
func TestStrangersAreLeftAlone(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	topology := lab.WAN("strange"+itoa(os.Getpid()), lab.WANOptions{})
	stranger := "sluice-" + topology.Name + "-server"
	if err := namespace.Create(stranger); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if !namespace.Exists(stranger) {
			t.Error("the stranger is gone")
		}
		if err := namespace.Delete(stranger); err != nil {
			t.Error(err)
		}
	}()
	o := lab.Options{RunDir: t.TempDir()}
	if _, err := lab.Up(testContext(t), topology, o); err == nil || !strings.Contains(err.Error(), "did not make") {
		t.Errorf("it came up over a stranger's namespace: %v", err)
	}
	if left := leftovers(t, o.RunDir, topology.Name); len(left) != 2 { // the file of the namespace and its mount
		t.Errorf("not just the stranger: %s", strings.Join(left, "\n"))
	}
}

func TestFailureHalfWayUndoesItself(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	o := lab.Options{RunDir: t.TempDir()}
	link := delayline.Params{Delay: time.Millisecond}
	broken := map[string]func(*lab.Topology){
		"sysctl": func(t *lab.Topology) { t.Hosts[0].Sysctls = map[string]string{"net.ipv4.no_such_thing": "1"} },
		"route": func(t *lab.Topology) {
			t.Hosts[0].Routes = lab.Islands("x", lab.WANOptions{}).Hosts[0].Routes
		},
		"flow": func(t *lab.Topology) { t.Switches[1].Flows = []string{"nonsense"} },
	}
	for name, spoil := range broken {
		topology := lab.Line(fmt.Sprintf("half%d-%s", os.Getpid(), name), 2, link)
		spoil(&topology)
		if l, err := lab.Up(testContext(t), topology, o); err == nil {
			t.Errorf("%s: it came up", name)
			_ = l.Down(testContext(t))
		}
		if left := leftovers(t, o.RunDir, topology.Name); len(left) > 0 {
			t.Errorf("%s: left over: %s", name, strings.Join(left, "\n"))
		}
	}
	ctx, cancel := context.WithTimeout(testContext(t), 100*time.Millisecond)
	defer cancel()
	topology := lab.FatTree("half"+itoa(os.Getpid()), 4, link)
	if _, err := lab.Up(ctx, topology, o); err == nil {
		t.Error("20 switches came up in 100 ms")
	}
	if left := leftovers(t, o.RunDir, topology.Name); len(left) > 0 {
		t.Errorf("cancelled: left over: %s", strings.Join(left, "\n"))
	}
}

const crashDir = "SLUICE_TEST_CRASH_DIR"

// TestCrashHelper is not a test: TestCrash runs it as the process that it kills.
func TestCrashHelper(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		t.Skip("only for TestCrash")
	}
	_, err := lab.Up(context.Background(), lab.WAN(filepath.Base(dir), lab.WANOptions{}), lab.Options{RunDir: dir, Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("up")
	select {}
}

// TestCrash kills the process that builds a lab, once half-way and once when the lab is up, and
// takes down what is left.
func TestCrash(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	for i, after := range []time.Duration{10e6, 30e6, 80e6, 150e6, 300e6, 0} {
		dir := filepath.Join(t.TempDir(), fmt.Sprintf("crash%d-%d", os.Getpid(), i))
		name := filepath.Base(dir)
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestCrashHelper$")
		cmd.Env = append(os.Environ(), crashDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if after == 0 {
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "up\n" {
				t.Errorf("the helper says %q, %v", line, err)
			}
		} else {
			waitFor(t, "the helper to begin", func() bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil })
			pause.For(after, "it is killed in the midst of its work")
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		t.Logf("killed with %d things made", len(leftovers(t, dir, name)))
		if i%2 == 0 {
			err = lab.Down(testContext(t), name, lab.Options{RunDir: dir})
		} else {
			err = lab.Sweep(testContext(t), lab.Options{RunDir: dir})
		}
		if err != nil {
			t.Errorf("killed after %v: %v", after, err)
		}
		if left := leftovers(t, dir, name); len(left) > 0 {
			t.Errorf("killed after %v: left over: %s", after, strings.Join(left, "\n"))
		}
	}
}

func TestWithoutRootItSaysSo(t *testing.T) {
	if strings.Contains(lab.ErrNotRoot.Error(), "\n") || !strings.Contains(lab.ErrNotRoot.Error(), "root") {
		t.Errorf("not one line that says what is needed: %q", lab.ErrNotRoot)
	}
	needsRoot(t)
	if err := syscall.Seteuid(65534); err != nil {
		t.Fatal(err)
	}
	_, err := lab.Up(context.Background(), lab.WAN("nobody", lab.WANOptions{}), lab.Options{RunDir: "/nowhere"})
	if err := syscall.Seteuid(0); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, lab.ErrNotRoot) {
		t.Errorf("without root: %v", err)
	}
}

func TestLongRunDirectoryIsRefused(t *testing.T) {
	needsRoot(t)
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if _, err := lab.Up(testContext(t), lab.WAN("long", lab.WANOptions{}), lab.Options{RunDir: dir}); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("sockets in a path of over 100 bytes: %v", err)
	}
}

// TestSweepLeavesWhatIsNoLabs checks that Sweep removes the empty directory of a builder that ended
// before it wrote its record, and nothing that is not a lab's.
func TestSweepLeavesWhatIsNoLabs(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	for _, name := range []string{"empty", "begun", "other"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"begun/state.json.new", "other/precious"} {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := lab.Sweep(t.Context(), lab.Options{RunDir: dir}); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "precious" {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, name := range []string{"empty", "begun"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}
