package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/selfbuild"
)

// must runs a program and returns its output.
func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "DPKG_DEB_COMPRESSOR_TYPE=none") // to compress the program takes minutes
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// buildPackage makes a package of the program.
func buildPackage(t *testing.T, dir, version string) string {
	t.Helper()
	for _, tool := range []string{"dpkg", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	return strings.TrimSpace(must(t, "../../packaging/build-deb.sh", selfbuild.Binary(t), version, dir))
}

// The package is unpacked by dpkg into an empty root, and what it brings works.
func TestDebianPackage(t *testing.T) {
	live.Test(t)
	t.Parallel()
	dir := t.TempDir()
	file := buildPackage(t, dir, "v1.2.3-4-gabcdef")
	if got := strings.TrimSpace(must(t, "dpkg-deb", "--field", file, "Version")); got != "1.2.3+4+gabcdef" {
		t.Errorf("version %q", got)
	}
	if got := strings.TrimSpace(must(t, "dpkg-deb", "--field", file, "Maintainer")); !regexp.MustCompile(`^The Sluice Authors <\S+@\S+\.\S+>$`).MatchString(got) {
		t.Errorf("maintainer %q", got)
	}
	root := filepath.Join(dir, "root")
	for _, sub := range []string{"updates", "info"} {
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, "dpkg", "--root="+root, "--force-depends", "--unpack", file)
	if list := must(t, "dpkg", "--root="+root, "--listfiles", "sluice"); !strings.Contains(list, "/usr/bin/sluice") {
		t.Errorf("dpkg lists:\n%s", list)
	}
	extracted := filepath.Join(dir, "extracted")
	must(t, "dpkg-deb", "-x", file, extracted)
	binary := filepath.Join(extracted, "usr/bin/sluice")
	if out := must(t, binary, "version"); !strings.Contains(out, "sluice") {
		t.Errorf("version: %s", out)
	}
	for _, name := range []string{
		"etc/sluice/controller.yaml", "etc/sluice/agent.yaml", "etc/default/sluice-mf-host", "lib/systemd/system/sluice-controller.service", "lib/systemd/system/sluice-agent.service",
		"usr/share/bash-completion/completions/sluice", "usr/share/zsh/vendor-completions/_sluice", "usr/share/fish/vendor_completions.d/sluice.fish", "usr/share/man/man1/sluice.1.gz",
		"usr/share/doc/sluice/copyright", "usr/share/doc/sluice/changelog.gz",
	} {
		if info, err := os.Stat(filepath.Join(extracted, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, binary, "config", "check", filepath.Join(extracted, "etc/sluice/controller.yaml"))
	must(t, "bash", "-n", filepath.Join(extracted, "usr/share/bash-completion/completions/sluice"))
	must(t, "gzip", "-t", filepath.Join(extracted, "usr/share/man/man1/sluice.1.gz"))
	control := filepath.Join(dir, "control")
	must(t, "dpkg-deb", "-e", file, control)
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		must(t, "sh", "-n", filepath.Join(control, script))
	}
	conffiles, err := os.ReadFile(filepath.Join(control, "conffiles"))
	if err != nil || strings.Count(string(conffiles), "/etc/sluice/") != 3 || !strings.Contains(string(conffiles), "/etc/default/sluice-mf-host\n") {
		t.Errorf("conffiles: %v\n%s", err, conffiles)
	}
	checkUnits(t, filepath.Join(extracted, "lib/systemd/system"))
}

var execStart = regexp.MustCompile(`(?m)^ExecStart=/usr/bin/sluice (\w+) --config (\S+)$`)

// checkUnits checks what systemd-analyze cannot where it is not installed: that
// the units start what exists, as a user of their own.
func checkUnits(t *testing.T, dir string) {
	t.Helper()
	for _, part := range []string{"controller", "agent"} {
		file := filepath.Join(dir, "sluice-"+part+".service")
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := execStart.FindStringSubmatch(string(b))
		if m == nil || m[1] != part || m[2] != "/etc/sluice/"+part+".yaml" {
			t.Errorf("%s starts %v", file, m)
		}
		for _, line := range []string{"User=sluice", "NoNewPrivileges=yes", "ProtectSystem=strict", "MemoryDenyWriteExecute=yes"} {
			if !strings.Contains(string(b), "\n"+line+"\n") {
				t.Errorf("%s lacks %s", file, line)
			}
		}
	}
	const noNetwork = "RestrictAddressFamilies=AF_UNIX AF_NETLINK"
	checkRoot(t, filepath.Join(dir, "sluice-classifier.service"), noNetwork,
		"ExecStart=/usr/bin/sluice classifier", "ProtectKernelTunables=yes", "SystemCallFilter=@system-service bpf")
	checkRoot(t, filepath.Join(dir, "sluice-host.service"), noNetwork,
		"ExecStart=/usr/bin/sluice host run", "CapabilityBoundingSet=CAP_NET_ADMIN", "SystemCallFilter=@system-service")
	checkRoot(t, filepath.Join(dir, "sluice-mf-host.service"),
		"EnvironmentFile=/etc/default/sluice-mf-host", "ExecStart=/usr/bin/sluice mf host $OPTIONS", "ProtectKernelTunables=yes", "SystemCallFilter=@system-service")
}

// checkRoot checks a unit that has to run as root.
func checkRoot(t *testing.T, file string, lines ...string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range append(lines, "NoNewPrivileges=yes", "ProtectSystem=strict", "MemoryDenyWriteExecute=yes") {
		if !strings.Contains(string(b), "\n"+line+"\n") {
			t.Errorf("%s lacks %s", file, line)
		}
	}
	if strings.Contains(string(b), "CAP_SYS_ADMIN") {
		t.Errorf("%s may do everything", file)
	}
}
