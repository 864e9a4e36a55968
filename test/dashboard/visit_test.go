package dashboard

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/live"
)

// visit has Chromium do what stands in a TypeScript file, against the API at server.
func visit(t *testing.T, file, server, token string, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "run", "--silent", "browser", "--", file+".test.ts", "--expect.poll.timeout=30000", "--hookTimeout=120000", "--testTimeout=120000")
	cmd.Dir = "../../dashboard"
	cmd.Env = append(os.Environ(), "SLUICE_SERVER="+server, "SLUICE_TOKEN="+token, "SLUICE_OUT="+outDir(t), "CHROMIUM="+mustFind(t, "chromium"))
	cmd.Env = append(cmd.Env, env...)
	// Whoever is told to end closes the browser.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// begin marks a live test, and skips it where a program, or the installed packages, are missing.
// The tests run one after the other: a browser alone keeps two cores busy.
func begin(t *testing.T, programs ...string) {
	t.Helper()
	live.Test(t)
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("NOT TESTED: the dashboard in a browser, because %s is missing", p)
		}
	}
	if _, err := os.Stat("../../dashboard/node_modules"); err != nil {
		t.Skip("NOT TESTED: the dashboard in a browser, because dashboard/node_modules is missing; make test-live installs it")
	}
}

func mustFind(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// outDir is where screenshots are left.
func outDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../out/dashboard")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
