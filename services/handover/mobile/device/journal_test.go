package device

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-net/sluice/internal/folderlock"
)

func TestJournalIsOneProcesses(t *testing.T) {
	dir := t.TempDir()
	j, err := OpenJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJournal(dir); !errors.Is(err, folderlock.ErrBusy) {
		t.Errorf("a second one: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if j, err = OpenJournal(dir); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, JournalFile), []byte(`[{"file"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJournal(dir); err == nil {
		t.Error("a damaged journal was opened")
	}
}

// A later process restores a file, unless another program has written it.
func TestFilesArePutBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		before string // "" for no file
		after  string // content when the journal is undone; "" for what was written
		want   string // "" for no file
	}{
		{"it was there", "nameserver 1.1.1.1\n", "", "nameserver 1.1.1.1\n"},
		{"it was not", "", "", ""},
		{"another program has written it", "nameserver 1.1.1.1\n", "theirs\n", "theirs\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "resolv.conf")
			write := func(text string) {
				if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
					t.Fatal(err)
				}
			}
			if c.before != "" {
				write(c.before)
			}
			j, err := OpenJournal(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range []string{"10.8.0.10", "10.8.0.11"} { // a second lease keeps the first original
				if ok, err := j.SetResolver(file, leaseWith(l)); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			if c.after != "" {
				write(c.after)
			}
			if err := j.Close(); err != nil { // killed here
				t.Fatal(err)
			}
			j, err = OpenJournal(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			if j.Len() != 1 {
				t.Errorf("%d changes", j.Len())
			}
			for range 2 { // undoing is idempotent
				if err := j.Undo(nil); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(file)
			if string(got) != c.want || c.want == "" && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
			if info, err := os.Stat(file); err == nil && info.Mode().Perm() != 0o640 {
				t.Errorf("mode %v", info.Mode())
			}
		})
	}
}

func TestLinkedResolverIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	target, file := filepath.Join(dir, "stub"), filepath.Join(dir, "resolv.conf")
	if err := errors.Join(os.WriteFile(target, []byte("x"), 0o600), os.Symlink(target, file)); err != nil {
		t.Fatal(err)
	}
	j, err := OpenJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if ok, err := j.SetResolver(file, leaseWith("10.8.0.10")); ok || err != nil {
		t.Error(ok, err)
	}
	if got, _ := os.ReadFile(target); string(got) != "x" {
		t.Errorf("%q", got)
	}
}
