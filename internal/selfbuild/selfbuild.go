// Package selfbuild compiles this module's programs for tests that start them.
package selfbuild

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Programs compiles sluice and sluice-lab into a folder of their own and returns the
// folder. It is gone when the test ends.
func Programs(t testing.TB) string {
	t.Helper()
	return build(t, "sluice", "sluice-lab")
}

// Binary compiles sluice and returns the program's path.
func Binary(t testing.TB) string {
	t.Helper()
	return filepath.Join(build(t, "sluice"), "sluice")
}

func build(t testing.TB, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, p := range programs {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, p), "github.com/sluice-net/sluice/cmd/"+p)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", p, err, out)
		}
	}
	return dir
}
