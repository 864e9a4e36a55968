// Package selfbuild provides this workspace's programs to tests that start them.
package selfbuild

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Folder is the name of an environment variable. Its value is the path of a folder with the programs
// sluice and sluice-lab, built from this tree. "make test-live" sets it, so that a run of all live
// suites links the programs once. Without it, each test process builds them into out/programs of the
// workspace.
const Folder = "SLUICE_BIN"

// Programs returns a folder that holds sluice and sluice-lab.
func Programs(tb testing.TB) string {
	tb.Helper()
	dir, err := programs()
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// Binary returns the path of sluice.
func Binary(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(Programs(tb), "sluice")
}

// programs returns the folder with both programs. It builds them at most once in a process.
var programs = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(Folder); dir != "" {
		if !filepath.IsAbs(dir) { // go test runs each test in its package's folder
			return "", fmt.Errorf("%s=%s: want an absolute path", Folder, dir)
		}
		return dir, nil
	}
	work, err := exec.Command("go", "env", "GOWORK").Output()
	if err != nil {
		return "", fmt.Errorf("find the workspace of the programs: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(work)))
	dir := filepath.Join(root, "out", "programs")
	return dir, build(root, dir)
})

// build compiles the programs into a folder, which concurrent test processes share. A lock keeps two
// of them from building at once. Each program is replaced by a rename, so that running programs are
// not changed.
func build(root, dir string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	for _, program := range []string{"./cmd/sluice", "./lab/cmd/sluice-lab"} {
		name := filepath.Base(program)
		file := filepath.Join(dir, name)
		cmd := exec.Command("go", "build", "-o", file+".new", program)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		if err := os.Rename(file+".new", file); err != nil {
			return err
		}
	}
	return nil
}
