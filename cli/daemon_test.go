package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/selfbuild"
)

// program is the real program while it runs, for two minutes at most.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	log *bufio.Scanner
}

func launch(t *testing.T, args ...string) *program {
	t.Helper()
	binary := selfbuild.Binary(t) // which does not count into its time
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, args...)
	if args[0] == "mobile" { // which changes interfaces
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &program{t, cmd, bufio.NewScanner(pipe)}
}

// until reads the program's log up to a line with a text, and returns that line.
func (p *program) until(want string) string {
	p.t.Helper()
	last := ""
	for p.log.Scan() {
		if last = p.log.Text(); strings.Contains(last, want) {
			return last
		}
	}
	p.t.Fatalf("the program has ended and not said %q, but %q: %v", want, last, p.cmd.Wait())
	return ""
}

func (p *program) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// ended waits for the program's end after SIGTERM.
func (p *program) ended() {
	p.t.Helper()
	for p.log.Scan() {
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("ended by SIGTERM: %v", err)
	}
}

// TestHangupLeavesTheClassifier checks that SIGHUP does not end the classifier, which has no
// configuration, and that it logs so.
func TestHangupLeavesTheClassifier(t *testing.T) {
	live.Test(t)
	t.Parallel()
	p := launch(t, "classifier", "--database", "unix:"+filepath.Join(t.TempDir(), "none.sock"))
	p.until("classifier runs")
	p.signal(syscall.SIGHUP)
	p.until("no configuration to read again")
	p.signal(syscall.SIGTERM)
	p.ended()
}

// TestHangupReloads checks that the real program reads its configuration again on SIGHUP, and goes
// on whatever the file contains.
func TestHangupReloads(t *testing.T) {
	live.Test(t)
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "controller.yaml")
	write := func(level, body string) {
		t.Helper()
		text := fmt.Sprintf("data_dir: %s\nstore: {kind: memory}\nlog: {level: %s}\napi: {listen: '127.0.0.1:0', max_body: %s}\nopenflow: {listen: ['127.0.0.1:0']}\n", dir, level, body)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("info", "1MiB")
	p := launch(t, "controller", "--config", file)
	p.until("controller runs")
	write("debug", "2MiB")
	p.signal(syscall.SIGHUP)
	if line := p.until("was read again"); !strings.Contains(line, "log_level=DEBUG") || !strings.Contains(line, "[api.max_body]") {
		t.Error(line)
	}
	write("nonsense", "1MiB")
	p.signal(syscall.SIGHUP)
	if line := p.until("was not read again"); !strings.Contains(line, "log.level") || !strings.Contains(line, "controller.yaml") {
		t.Error(line)
	}
	write("info", "1MiB")
	p.signal(syscall.SIGHUP)
	if line := p.until("was read again"); !strings.Contains(line, "needs_a_restart=[]") {
		t.Error(line)
	}
	p.signal(syscall.SIGTERM)
	p.until("controller stops")
	p.ended()
}
