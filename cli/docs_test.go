package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const referenceDir = "../docs/reference"

// The reference in the repository is what the program writes.
func TestReferenceIsCurrent(t *testing.T) {
	want, err := Reference()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(referenceDir, name))
		if err != nil || string(got) != text {
			t.Errorf("docs/reference/%s is not current (%v): run \"go run ./cmd/sluice docs --dir docs/reference\"", name, err)
		}
	}
}

func TestManPage(t *testing.T) {
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("man is not installed")
	}
	file := filepath.Join(t.TempDir(), "sluice.1")
	if err := os.WriteFile(file, []byte(manPage(New(&App{}))), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "man", "--warnings", "-E", "UTF-8", "-l", file)
	cmd.Env = append(os.Environ(), "MANPAGER=cat", "LC_ALL=C.UTF-8", "MANWIDTH=80")
	out, err := cmd.CombinedOutput()
	if err != nil || len(out) < 1000 {
		t.Errorf("%v: %s", err, out)
	}
}
