package dashboard

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// run starts a script of package.json. Without npm, or before `make dashboard`
// has installed what the build needs, the test is skipped.
func run(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("NOT CHECKED: the sources of the dashboard, because npm is missing")
	}
	if _, err := os.Stat("node_modules"); err != nil {
		t.Skip("NOT CHECKED: the sources of the dashboard, because node_modules is missing; make unit installs it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", append([]string{"run", "--silent"}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm run %v: %v\n%s", args, err, out)
	}
}

// TestBuilt proves that the embedded files are what the sources build.
func TestBuilt(t *testing.T) {
	dir := t.TempDir()
	run(t, "build", "--", "--outDir", dir, "--emptyOutDir", "--logLevel", "warn")
	embedded, err := load()
	if err != nil {
		t.Fatal(err)
	}
	built, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(built) != len(embedded) {
		t.Errorf("the sources build %d files, %d are embedded", len(built), len(embedded))
	}
	for _, f := range built {
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content, embedded[Path+f.Name()].content) {
			t.Errorf("dist/%s is not what the sources build: run make dashboard, and commit dist", f.Name())
		}
	}
}

// TestTypes checks the sources, also against the types of the API's document.
func TestTypes(t *testing.T) { run(t, "check") }

// TestUnits runs the unit tests of the sources.
func TestUnits(t *testing.T) { run(t, "test") }

// TestLock keeps private registries out of the lock file: npm asks the one that is
// configured where it runs in place of the public one.
func TestLock(t *testing.T) {
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if versions, hashes := bytes.Count(lock, []byte(`"version": "`)), bytes.Count(lock, []byte(`"integrity": "sha512-`)); hashes == 0 || hashes != versions {
		t.Errorf("package-lock.json has %d packages and %d hashes", versions, hashes)
	}
	for line := range bytes.Lines(lock) {
		if bytes.Contains(line, []byte(`"resolved"`)) && !bytes.Contains(line, []byte(`"https://registry.npmjs.org/`)) {
			t.Errorf("package-lock.json names another registry than the public one: %s", bytes.TrimSpace(line))
		}
	}
}
