package cli

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
)

// A file that is sent while its receiver is away is stored, listed and delivered, and errors of
// usage are reported.
func TestStorage(t *testing.T) {
	dir := t.TempDir()
	nodeKey, key, chunks := filepath.Join(dir, "node"), filepath.Join(dir, "key"), filepath.Join(dir, "chunks")
	node, err := frame.ParseGUID(newName(t, nodeKey))
	if err != nil {
		t.Fatal(err)
	}
	name := newName(t, key)
	socket, stop := hosttest.Run(t, host.Options{Storage: []frame.GUID{node}})
	var running sync.WaitGroup
	running.Go(func() {
		code, _, errOut := sluice(t, "mf", "storage", "--socket", socket, "--name-key", nodeKey, "--dir", chunks)
		if code == command.ExitOK || !strings.Contains(errOut, "handed_on=3") || !strings.Contains(errOut, "chunks=0") {
			t.Errorf("%d: %s", code, errOut) // its host has ended
		}
	})
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("a letter"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := sluice(t, "mf", "send", "--socket", socket, "--delay-tolerant", "--chunk", "5B", name, file); code != command.ExitOK || !strings.Contains(errOut, "taken in") {
		t.Fatalf("%d: %s", code, errOut)
	}
	if code, out, errOut := sluice(t, "mf", "storage", "list", "--dir", chunks); code != command.ExitOK || !strings.Contains(out, name) || !strings.Contains(out, " 3 ") {
		t.Errorf("%d: %s%s", code, out, errOut)
	}
	if code, got, errOut := sluice(t, "mf", "recv", "--socket", socket, "--name-key", key); code != command.ExitOK || got != "a letter" {
		t.Errorf("%d: %q, %s", code, got, errOut)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		_, out, _ := sluice(t, "mf", "storage", "list", "--dir", chunks)
		if !strings.Contains(out, name) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the node has %s", out)
		}
		pause.For(10*time.Millisecond, "the node hears that the chunks are taken")
	}
	stop()
	running.Wait()
	for _, wrong := range []struct {
		args []string
		want string
	}{
		{[]string{"storage"}, "--name-key is missing"},
		{[]string{"storage", "--name-key", nodeKey, "--size", "1MiB"}, "at least 256MiB"},
		{[]string{"storage", "--name-key", nodeKey, "--keep", "1s"}, "want 1m to"},
		{[]string{"storage", "list", "--dir", filepath.Join(dir, "none")}, "no such file"},
		{[]string{"host", "--interface", "eth0", "--storage", "laptop"}, "40 hexadecimal digits"},
		{[]string{"host", "--interface", "eth0", "--custody", "1s"}, "want 1m to"},
		{[]string{"host", "--interface", "eth0", "--custody", "1h"}, "--custody wants --storage"},
		{[]string{"send", "--delay-tolerant", "--chunk", "5MiB", name, file}, "want 1 byte to 4MiB"},
	} {
		if code, _, errOut := sluice(t, append([]string{"mf"}, wrong.args...)...); code == command.ExitOK || !strings.Contains(errOut, wrong.want) {
			t.Errorf("%q: %d, %s", wrong.args, code, errOut)
		}
	}
}
