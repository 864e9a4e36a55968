// Package selfbuild compiles this module's program for tests that start it.
package selfbuild

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Folder compiles sluice into a folder of its own and returns the folder. The
// binary is gone when the test ends.
func Folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "sluice"), "github.com/sluice-net/sluice/cmd/sluice")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build sluice: %v\n%s", err, out)
	}
	return dir
}

// Binary compiles sluice and returns the program's path.
func Binary(t testing.TB) string {
	t.Helper()
	return filepath.Join(Folder(t), "sluice")
}
