package wholefile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "state")
	for _, content := range []string{"one", "the other"} {
		if err := Replace(file, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != content {
			t.Errorf("%q, %v instead of %q", got, err, content)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("permissions: %v, %v", info, err)
	}
	alone(t, dir)
}

// A file that cannot be replaced stays as it is, and nothing is left beside it.
func TestReplaceRefused(t *testing.T) {
	dir := t.TempDir()
	taken := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(taken, "in use"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(taken, []byte("content"), 0o600); err == nil {
		t.Error("a folder was replaced")
	}
	alone(t, dir)
	if err := Replace(filepath.Join(dir, "missing", "file"), nil, 0o600); err == nil {
		t.Error("a file was made in a folder that is not there")
	}
}

// alone says that there is one entry in a folder.
func alone(t *testing.T, dir string) {
	t.Helper()
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("%d entries, %v instead of one", len(all), err)
	}
}
