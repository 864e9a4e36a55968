package listen_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-net/sluice/internal/listen"
)

// A socket is for its user alone, or for a group, too. One that a process has left is replaced; one at
// which somebody listens is not, nor a file.
func TestUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "s")
	l, err := listen.Unix(path, -1)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := listen.Unix(path, -1); err == nil {
		t.Error("a second process listens at the same socket")
	}
	// As if it had been killed: the socket stays and the next process replaces it.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = listen.Unix(path, os.Getgid()); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen.Unix(file, -1); err == nil {
		t.Error("a file was replaced by a socket")
	}
}
