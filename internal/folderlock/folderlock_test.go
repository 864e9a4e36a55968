package folderlock

import (
	"errors"
	"path/filepath"
	"testing"
)

// A folder is taken once at a time.
func TestTake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	first, err := Take(dir, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Take(dir, 0o700); !errors.Is(err, ErrBusy) {
		t.Errorf("taken twice: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Take(dir, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

// A file is taken once at a time, beside others of its folder.
func TestTakeFile(t *testing.T) {
	dir := t.TempDir()
	first, err := TakeFile(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := TakeFile(filepath.Join(dir, "state")); !errors.Is(err, ErrBusy) {
		t.Errorf("taken twice: %v", err)
	}
	other, err := TakeFile(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatalf("another file of the folder: %v", err)
	}
	_ = other.Close()
}
