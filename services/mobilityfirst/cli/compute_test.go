package cli

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
)

// Data that are sent through a function arrive as its result; failures of the function and errors
// of usage are reported.
func TestCompute(t *testing.T) {
	dir := t.TempDir()
	function, key := newName(t, filepath.Join(dir, "function")), newName(t, filepath.Join(dir, "key"))
	socket, stop := hosttest.Run(t, host.Options{})
	var running sync.WaitGroup
	running.Go(func() {
		code, _, errOut := sluice(t, "mf", "compute", "--socket", socket, "--name-key", filepath.Join(dir, "function"), "--", "grep", "-v", "bad")
		if code == command.ExitOK || !strings.Contains(errOut, "called=2") || !strings.Contains(errOut, "failed=1") {
			t.Errorf("%d: %s", code, errOut) // its host has ended
		}
	})
	running.Go(func() {
		code, out, errOut := sluice(t, "mf", "recv", "--socket", socket, "--name-key", filepath.Join(dir, "key"))
		if code != command.ExitOK || out != "good\n" {
			t.Errorf("%d: %q %s", code, out, errOut)
		}
	})
	send := func(text string) (int, string) {
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, errOut := sluice(t, "mf", "send", "--socket", socket, "--through", function, key, file)
		return code, errOut
	}
	if code, errOut := send("bad\n"); code == command.ExitOK || !strings.Contains(errOut, "the function has failed: exit status 1") {
		t.Errorf("%d: %s", code, errOut)
	}
	if code, errOut := send("good\nbad\n"); code != command.ExitOK {
		t.Errorf("%d: %s", code, errOut)
	}
	stop()
	running.Wait()
	some := []string{"mf", "compute", "--name-key", "key"}
	for what, args := range map[string][]string{
		"--name-key is missing":       {"mf", "compute", "--builtin", "compress"},
		"want --builtin, or":          some,
		"not both":                    append(some, "--builtin", "compress", "--", "cat"),
		"has to follow --":            append(some, "cat"),
		"want 10ms to 1m":             append(some, "--within", "1ms", "--", "cat"),
		"want at least 1MiB":          append(some, "--builtin", "compress", "--memory", "16MiB"),
		"want one of compress":        append(some, "--builtin", "nonsense"),
		"the function's program":      append(some, "--", "/nowhere/program"),
		"want one of them":            {"mf", "send", "--through", function, "--delay-tolerant", key},
		"want 40 hexadecimal digits":  {"mf", "send", "--through", "nonsense", key},
		"function \"x\": want one of": {"mf", "compute", "call", "x"},
	} {
		if code, _, errOut := sluice(t, args...); code == command.ExitOK || !strings.Contains(errOut, what) {
			t.Errorf("%q: %d: %s, want %q", args, code, errOut, what)
		}
	}
}
