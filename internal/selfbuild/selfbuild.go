// Package selfbuild compiles this module's programs for tests that start them.
package selfbuild

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Programs compiles sluice and sluice-lab into a folder of their own and returns the
// folder, the same one for a test that asks again. It is gone when the test ends.
func Programs(t testing.TB) string {
	t.Helper()
	return build(t, "sluice", "sluice-lab")
}

// Binary compiles sluice and returns the program's path.
func Binary(t testing.TB) string {
	t.Helper()
	return filepath.Join(build(t, "sluice"), "sluice")
}

// built are the folders of tests that run, by their names and what is in them.
var built sync.Map

// build compiles programs once for a test.
func build(t testing.TB, programs ...string) string {
	t.Helper()
	key := fmt.Sprint(t.Name(), programs)
	if dir, is := built.Load(key); is {
		return dir.(string)
	}
	dir := t.TempDir()
	for _, p := range programs {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, p), "github.com/sluice-net/sluice/cmd/"+p)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", p, err, out)
		}
	}
	built.Store(key, dir)
	t.Cleanup(func() { built.Delete(key) })
	return dir
}
