package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// machines are namespaces with copies of this system, each with its own files, users,
// processes and network. They end with the test, and with its process.
type machines struct {
	homes string
	pids  map[string]string
}

// newMachines boots machines of the names.
func newMachines(t *testing.T, names ...string) *machines {
	t.Helper()
	if known, err := os.ReadFile("/proc/filesystems"); err == nil && !strings.Contains(string(known), "\toverlay\n") && exec.CommandContext(t.Context(), "modprobe", "overlay").Run() != nil {
		t.Skip("this kernel has no overlayfs, of which machines are made")
	}
	m := &machines{homes: t.TempDir(), pids: map[string]string{}}
	for _, name := range names {
		if err := os.Mkdir(filepath.Join(m.homes, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		m.boot(t, name)
	}
	return m
}

func (m *machines) boot(t *testing.T, name string) {
	t.Helper()
	programs, err := filepath.Abs("testdata/machine")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
		filepath.Join(programs, "boot"), t.TempDir(), m.homes, name, programs)
	cmd.Stderr = t.Output()
	life, err := cmd.StdinPipe() // the machine lives while this is open
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
	t.Cleanup(func() {
		life.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("machine %s: %v", name, err)
		}
	})
	pid, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("machine %s did not start: %v", name, err)
	}
	m.pids[name] = strings.TrimSpace(pid)
}

// run runs a script on a machine as a user, and returns what it printed.
func (m *machines) run(t *testing.T, machine, user, script string) (string, error) {
	t.Helper()
	home := map[string]string{"admin": "/srv/admin", "root": "/root"}[user]
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "--target", m.pids[machine], "--mount", "--pid", "--net", "--root", "--wdns="+home,
		"setpriv", "--reuid", user, "--regid", user, "--init-groups", "env", "-i", "HOME="+home, "USER="+user, "LANG=C.UTF-8",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "bash", "-euo", "pipefail", "-c", "test -e /.machine || exit 99 # never on the machine of the test\n"+script)
	// A file, not a pipe: what goes on in the background holds nobody up.
	out, err := os.CreateTemp(t.TempDir(), "out-*")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = errors.Join(cmd.Run(), ctx.Err())
	printed, readErr := os.ReadFile(out.Name())
	return string(printed), errors.Join(err, readErr)
}

// must is run as root for what the test itself needs.
func (m *machines) must(t *testing.T, machine, script string) string {
	t.Helper()
	out, err := m.run(t, machine, "root", script)
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", machine, err, script, out)
	}
	return out
}

// link is a cable between two machines; each end is named after the other machine.
func (m *machines) link(t *testing.T, a, b string) {
	t.Helper()
	must(t, "ip", "link", "add", b, "netns", m.pids[a], "type", "veth", "peer", "name", a, "netns", m.pids[b])
	for machine, end := range map[string]string{a: b, b: a} {
		// Frames on their way to a switch in user space need their checksums.
		m.must(t, machine, fmt.Sprintf("ip link set %[1]s up; ethtool -K %[1]s tx off >/dev/null", end))
	}
}

// logs shows what the units of a machine have said.
func (m *machines) logs(t *testing.T) {
	for name := range m.pids {
		out, _ := m.run(t, name, "root", `for log in /run/*.log /var/log/openvswitch/*.log; do [ ! -s "$log" ] || { echo "--- $log"; tail -n 6 "$log"; }; done`)
		t.Logf("%s:\n%s", name, out)
	}
}
