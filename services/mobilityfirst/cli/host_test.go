package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
)

// A file is sent to a name and received there, names answer pings, and errors of usage are
// reported.
func TestChunks(t *testing.T) {
	dir := t.TempDir()
	socket, _ := hosttest.Run(t, host.Options{})
	key, file := filepath.Join(dir, "key"), filepath.Join(dir, "film")
	name := newName(t, key)
	want := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	if err := os.WriteFile(file, want, 0o600); err != nil {
		t.Fatal(err)
	}
	var receiving sync.WaitGroup
	receiving.Go(func() {
		code, got, errOut := sluice(t, "mf", "recv", "--socket", socket, "--name-key", key)
		if code != command.ExitOK || got != string(want) || !strings.Contains(errOut, name) {
			t.Errorf("%d: %d bytes of %d, %s", code, len(got), len(want), errOut)
		}
	})
	if code, out, errOut := sluice(t, "mf", "ping", "--socket", socket, "--count", "1", name); code != command.ExitOK || !strings.Contains(out, name) {
		t.Errorf("%d: %s%s", code, out, errOut)
	}
	if code, _, errOut := sluice(t, "mf", "send", "--socket", socket, "--chunk", "100KiB", name, file); code != command.ExitOK || !strings.Contains(errOut, "taken in") {
		t.Errorf("%d: %s", code, errOut)
	}
	receiving.Wait()

	if code, _, errOut := sluice(t, "mf", "ping", "--socket", socket, "--within", "50ms", name); code == command.ExitOK || !strings.Contains(errOut, "no answer") {
		t.Errorf("somebody answers: %d, %s", code, errOut)
	}
	for _, wrong := range []struct {
		args []string
		want string
	}{
		{[]string{"ping", "--socket", filepath.Join(dir, "none"), name}, "is \"sluice mf host\" running?"},
		{[]string{"send", "--socket", socket, "laptop", file}, "40 hexadecimal digits"},
		{[]string{"send", "--socket", socket, "--chunk", "17MiB", name, file}, "want 1 byte to 16MiB"},
		{[]string{"send", "--socket", socket, name, filepath.Join(dir, "none")}, "no such file"},
		{[]string{"recv", "--socket", socket, "--name-key", file}, "not PEM"},
		{[]string{"perf", "--socket", socket, "--time", "1ms", name}, "--time from 100ms"},
		{[]string{"proxy", "--socket", socket}, "want --connect"},
		{[]string{"proxy", "--socket", socket, "--listen", "127.0.0.1:0"}, "want each other"},
		{[]string{"proxy", "--socket", socket, "--listen", "127.0.0.1:0", "--to", "laptop"}, "40 hexadecimal digits"},
		{[]string{"proxy", "--socket", socket, "--listen", "127.0.0.1:0", "--to", name, "--connect", "127.0.0.1:80"}, "want --connect"},
		{[]string{"proxy", "--socket", socket, "--listen", "127.0.0.1:0", "--to", name, "--allow", name}, "names that may connect"},
		{[]string{"proxy", "--socket", socket, "--connect", "80"}, "like 127.0.0.1:80"},
		{[]string{"host", "--socket", socket}, "--interface is missing"},
		{[]string{"host", "--udp", "5028"}, "want each other"},
		{[]string{"host", "--interface", "eth0", "--names", "192.0.2.1:5001"}, "want each other"},
		{[]string{"host", "--udp", "5027", "--names", "192.0.2.1:5001"}, "even port"},
		{[]string{"host", "--udp", "5028", "--names", "[2001:db8::1]:5001"}, "IPv4"},
		{[]string{"host", "--interface", "eth0", "--keep", "0s"}, "1s to 24h"},
		{[]string{"host", "--interface", "eth0", "--memory", "1MiB"}, "at least 256MiB"},
		{[]string{"host", "--interface", "eth0", "--group", "no-such-group"}, "--group"},
	} {
		if code, _, errOut := sluice(t, append([]string{"mf"}, wrong.args...)...); code == command.ExitOK || !strings.Contains(errOut, wrong.want) {
			t.Errorf("%q: %d, %s", wrong.args, code, errOut)
		}
	}
}
