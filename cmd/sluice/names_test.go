package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/check"
	"github.com/sluice-net/sluice/internal/live"
)

var (
	printedName = regexp.MustCompile(`(?m)^name ([0-9a-f]{40})$`)
	exampleName = regexp.MustCompile(`\b[0-9a-f]{40}\b`)
)

// TestNamesAsWritten runs the blocks of docs/how-to/names.md that name machines, as an ordinary
// user with sudo, on two machines with a cable between them. A block that receives runs in the
// background, and the name that it prints replaces the page's example in the blocks after it.
func TestNamesAsWritten(t *testing.T) {
	live.Test(t)
	t.Parallel()
	for _, tool := range []string{"unshare", "nsenter", "setpriv", "apt", "adduser", "ethtool"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed; make deps installs it", tool)
		}
	}
	m := newMachines(t, "laptop", "desk")
	defer func() {
		if t.Failed() {
			m.logs(t)
		}
	}()
	deb := buildPackage(t, t.TempDir(), "v1.2.3")
	m.link(t, "laptop", "desk")
	for name, other := range map[string]string{"laptop": "desk", "desk": "laptop"} {
		must(t, "install", "-D", "-m", "0644", "-t", filepath.Join(m.homes, name, "dist"), deb)
		m.must(t, name, "ip link set "+other+" down; ip link set "+other+" name eth0 up")
	}
	m.must(t, "desk", "head -c 3000000 /dev/urandom >/srv/admin/film.mp4; chown admin: /srv/admin/film.mp4")
	root, err := check.Root()
	if err != nil {
		t.Fatal(err)
	}
	const page = "docs/how-to/names.md"
	blocks, err := check.OnMachines(root, page)
	if err != nil || len(blocks) == 0 {
		t.Fatalf("%d blocks in %s: %v", len(blocks), page, err)
	}
	name := ""
	for _, b := range blocks {
		text := exampleName.ReplaceAllString(b.Text, name)
		receives := strings.Contains(text, "sluice mf recv")
		if receives {
			text = "rm -f said\n" + strings.Replace(text, "sluice mf recv", "setsid sluice mf recv 2>said </dev/null", 1)
			text = strings.TrimSpace(text) + " &"
		}
		for _, machine := range b.On {
			follow(t, m, machine, b, text)
		}
		if receives {
			name = awaitName(t, m, b.On[0])
		}
	}
	m.must(t, "laptop", "test $(sha256sum </machines/desk/film.mp4 | cut -c 1-64) = $(sha256sum </srv/admin/film.mp4 | cut -c 1-64)")
	checkNamesUnit(t, m)
}

// awaitName waits until "sluice mf recv" has printed its name on a machine, and returns the name.
func awaitName(t *testing.T, m *machines, machine string) string {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		said := m.must(t, machine, "cat /srv/admin/said")
		if found := printedName.FindStringSubmatch(said); found != nil {
			return found[1]
		}
		select {
		case <-deadline:
			t.Fatalf("%s has attached no name: %s", machine, said)
		default:
		}
	}
}

// checkNamesUnit checks that the unit's process has no other capabilities than the unit grants, and
// that missing flags end it with the status for which systemd does not start it again.
func checkNamesUnit(t *testing.T, m *machines) {
	t.Helper()
	const granted = 1<<unix.CAP_NET_RAW | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_CHOWN
	out := m.must(t, "laptop", "sed -n 's/^CapEff:\t//p' /proc/$(cat /run/sluice-mf-host.pid)/status")
	if caps, err := strconv.ParseUint(strings.TrimSpace(out), 16, 64); err != nil || caps&^granted != 0 || caps&(1<<unix.CAP_NET_RAW) == 0 {
		t.Errorf("the unit's process has the capabilities %s, want at most %x: %v", out, granted, err)
	}
	if out := m.must(t, "laptop", "sluice mf host || echo $?"); !strings.Contains(out, "--interface is missing") || !strings.HasSuffix(out, "\n2\n") {
		t.Errorf("sluice mf host without flags: %s", out)
	}
}
