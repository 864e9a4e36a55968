package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A copy outside the tree is a service of one's own: it compiles against what Sluice
// exports.
func TestCopyCompiles(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copied := func(from, to string, change func(string) string) {
		t.Helper()
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), []byte(change(string(b))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	same := func(text string) string { return text }
	for _, name := range []string{"doc.go", "main.go", "service.go"} {
		copied(name, name, same)
	}
	copied(filepath.Join(root, "go.sum"), "go.sum", same)
	copied(filepath.Join(root, "go.mod"), "go.mod", func(text string) string {
		const module = "github.com/sluice-net/sluice"
		return strings.Replace(text, "module "+module+"\n", "module example.org/quarantine\n", 1) +
			"\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + root + "\n"
	})
	vet := exec.CommandContext(t.Context(), "go", "vet", ".") // compiles, and does not link
	vet.Dir = dir
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
