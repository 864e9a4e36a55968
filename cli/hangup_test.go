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

	"github.com/sluice-net/sluice/internal/selfbuild"
)

// The classifier, which has no configuration, outlives SIGHUP and says so.
func TestHangupLeavesTheClassifier(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, selfbuild.Binary(t), "classifier", "--database", "unix:"+filepath.Join(t.TempDir(), "none.sock"))
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log := bufio.NewScanner(pipe)
	after := func(line string, then syscall.Signal) {
		t.Helper()
		for log.Scan() {
			if strings.Contains(log.Text(), line) {
				if err := cmd.Process.Signal(then); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
		t.Fatalf("the program has ended and not said %q: %v", line, cmd.Wait())
	}
	after("classifier runs", syscall.SIGHUP)
	after("no configuration to read again", syscall.SIGTERM)
	for log.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended by SIGTERM: %v", err)
	}
}

// The real program reads its configuration again on SIGHUP, and goes on whatever that is.
func TestHangupReloads(t *testing.T) {
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, selfbuild.Binary(t), "controller", "--config", file)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log := bufio.NewScanner(pipe)
	until := func(want string) string {
		t.Helper()
		for log.Scan() {
			if strings.Contains(log.Text(), want) {
				return log.Text()
			}
		}
		t.Fatalf("the program has ended and not said %q: %v", want, cmd.Wait())
		return ""
	}
	hangup := func() {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	until("controller runs")
	write("debug", "2MiB")
	hangup()
	if line := until("was read again"); !strings.Contains(line, "log_level=DEBUG") || !strings.Contains(line, "[api.max_body]") {
		t.Error(line)
	}
	write("nonsense", "1MiB")
	hangup()
	if line := until("was not read again"); !strings.Contains(line, "log.level") || !strings.Contains(line, "controller.yaml") {
		t.Error(line)
	}
	write("info", "1MiB")
	hangup()
	if line := until("was read again"); !strings.Contains(line, "needs_a_restart=[]") {
		t.Error(line)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until("controller stops")
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended by SIGTERM: %v", err)
	}
}
