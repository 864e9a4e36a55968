package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(file, []byte("1234567890"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(file, 10); err != nil || string(got) != "1234567890" {
		t.Errorf("Read of a file of 10 bytes = %q, %v", got, err)
	}
	if _, err := Read(file, 9); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Read of a file that is too large: %v", err)
	}
	if _, err := Read(filepath.Join(dir, "none"), 9); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read of no file: %v", err)
	}
	for _, path := range []string{pipe, "/dev/zero", "/dev/null", dir} {
		if _, err := Read(path, 9); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("Read(%s): %v, want not a regular file", path, err)
		}
	}
}
