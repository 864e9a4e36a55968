package cli

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/namestore"
)

// newName creates a name whose key is in a file.
func newName(t *testing.T, file string) string {
	t.Helper()
	code, name, errOut := sluice(t, "mf", "name", "new", file)
	if code != command.ExitOK {
		t.Fatal(errOut)
	}
	return strings.TrimSpace(name)
}

// nameService runs a name service on the loopback interface, and returns its address.
func nameService(t *testing.T) string {
	t.Helper()
	store, err := namestore.Open(namestore.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := gnrs.Listen(gnrs.Options{Store: store, Listen: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, store.Close()); err != nil {
			t.Error(err)
		}
	})
	return s.Addr().String()
}

// A name is created, has no address, and then has the address that its owner publishes; a key that
// others may read is refused.
func TestNames(t *testing.T) {
	at, key := nameService(t), filepath.Join(t.TempDir(), "key")
	ok := func(args ...string) string {
		t.Helper()
		code, out, errOut := sluice(t, append([]string{"mf", "name"}, args...)...)
		if code != command.ExitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, errOut)
		}
		return strings.TrimSpace(out)
	}
	name := ok("new", key)
	if st, err := os.Stat(key); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", st, err)
	}
	if code, _, errOut := sluice(t, "mf", "name", "show", name, "--names", at); code == command.ExitOK || !strings.Contains(errOut, "the name is not registered") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	ok("set", "--name-key", key, "--names", at, "192.0.2.7:5000", strings.Repeat("ab", 20))
	want := name + ": 192.0.2.7:5000, " + strings.Repeat("ab", 20) + ", until "
	if got := ok("show", name, "--names", at); !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	ok("set", "--name-key", key, "--names", at)
	if got := ok("show", name, "--names", at); !strings.HasPrefix(got, name+": nowhere, until ") {
		t.Errorf("%s", got)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(open, []byte("no key"), 0o644); err != nil {
		t.Fatal(err)
	}
	for line, says := range map[string]string{
		"name set --name-key " + open + " 192.0.2.7:1":                            "others may read",
		"gnrs --listen 0.0.0.0:5001 --dir " + filepath.Join(t.TempDir(), "names"): "one address of this machine",
		"name new " + key:                                              "exists",
		"name set 192.0.2.7:1":                                         "--name-key is missing",
		"name set --name-key " + text + " 192.0.2.7:1":                 "is not PEM",
		"name set --name-key " + key + " 192.0.2.7":                    "want an IPv4 address with a port",
		"name set --name-key " + key + " --valid 25h 192.0.2.7:1":      "want 1s to 24h",
		"name set --name-key " + key + " --names nowhere 1.2.3.4:5":    "--names nowhere",
		"name set --name-key " + key + strings.Repeat(" 1.2.3.4:5", 9): "8 allowed",
		"send --multicast --multihoming " + strings.Repeat("00", 20):   "want one of them",
		"perf --multicast --multihoming " + strings.Repeat("00", 20):   "want one of them",
		"name show abc":                           "40 hexadecimal digits",
		"gnrs --listen nowhere":                   "--listen nowhere",
		"gnrs --self a":                           "is not among them",
		"gnrs --self a --domain a=127.0.0.1":      "like west=192.0.2.1:5001",
		"gnrs --self a --domain b=127.0.0.1:5001": "is not among them",
		"gnrs --self a --domain a=127.0.0.1:5001 --domain b=127.0.0.1:5001": "given twice",
		"gnrs --self a --domain a=127.0.0.1:5001 --listen 127.0.0.2:5001":   "the other domains reach a at 127.0.0.1:5001",
		"gnrs --replicas 0":                                                   "at least 1",
		"gnrs --redis 192.0.2.7":                                              "like 192.0.2.7:6379",
		"gnrs --redis-replicas 1":                                             "no node of the cluster",
		"gnrs --redis 192.0.2.7:6379 --redis-replicas 99":                     "0 to 16",
		"gnrs --redis 192.0.2.7:6379 --redis-user u":                          "has no password",
		"gnrs --redis 192.0.2.7:6379 --redis-fsync sometimes":                 "everysec",
		"gnrs --redis 192.0.2.7:6379 --redis-cert c":                          "belong together",
		"gnrs --redis 192.0.2.7:6379 --redis-password-file " + open:           "open to everybody",
		"gnrs --redis 192.0.2.7:6379 --redis-password-file " + open + ".none": "no such file",
		"gnrs --names 0":                                                      "at least 1",
	} {
		if code, _, errOut := sluice(t, append([]string{"mf"}, strings.Fields(line)...)...); code == command.ExitOK || !strings.Contains(errOut, says) {
			t.Errorf("%s: exit code %d: %s, want %s", line, code, errOut, says)
		}
	}
}
