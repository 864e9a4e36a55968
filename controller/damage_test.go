package controller

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/store/pebblestore"
)

// stored makes a data folder with five entries of the whitelist, a snapshot of them, and a database
// with sorted files and a log that have more.
func stored(t *testing.T, binary string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "sluice")
	c := startProgram(t, binary, dir, "store.snapshots.every=1s")
	c.ready(t, dir)
	for n := range 5 {
		if status, text := c.whitelist(t, n); status != 201 {
			t.Fatalf("add an entry: %d %s", status, text)
		}
	}
	written := time.Now()
	eventually(t, "a snapshot with the entries", func() bool {
		all, err := pebblestore.Snapshots(dir)
		return err == nil && len(all) > 0 && all[0].Time.After(written)
	})
	c.end(t, syscall.SIGTERM)
	s, err := pebblestore.Open(t.Context(), pebblestore.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 50 {
		wg.Go(func() {
			for n := range 120 {
				if err := s.Put(t.Context(), fmt.Sprintf("bulk/%d-%d", w, n), random(1024)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for n := range 3 { // so that the last log has one at least
		do(t, s.Put(t.Context(), fmt.Sprintf("last/%d", n), random(1024)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// files lists the files of the database with an ending that are not empty, the oldest first.
func files(t *testing.T, dir, ending string) []string {
	t.Helper()
	named, err := filepath.Glob(filepath.Join(dir, "store", "*"+ending))
	do(t, err)
	var all []string
	for _, f := range named {
		if info, err := os.Stat(f); err == nil && info.Size() > 0 {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		t.Fatalf("the test needs a file *%s", ending)
	}
	return all
}

func last(all []string) string { return all[len(all)-1] }

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// usedOf returns where the zeros begin with which a file ends.
func usedOf(t *testing.T, file string) int64 {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(bytes.TrimRight(b, "\x00")))
}

func do(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// overwrite puts bytes into a file.
func overwrite(t *testing.T, file string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	do(t, err)
	_, err = f.WriteAt(b, at)
	do(t, err, f.Close())
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// nobody is a user without rights.
const nobody = 65534

var damages = []struct {
	name   string
	damage func(t *testing.T, dir string)
	want   string
	user   uint32 // who runs the controller

	nothing bool // there is nothing left to be kept aside
}{
	{"log cut within its first record", func(t *testing.T, dir string) { do(t, os.Truncate(last(files(t, dir, ".log")), 200)) }, "lacks changes", 0, false},
	{"log with garbage", func(t *testing.T, dir string) { overwrite(t, last(files(t, dir, ".log")), 100, random(16)) }, "store", 0, false},
	{"log of size zero", func(t *testing.T, dir string) { do(t, os.Truncate(last(files(t, dir, ".log")), 0)) }, "lacks changes", 0, false},
	{"log missing", func(t *testing.T, dir string) {
		for _, f := range files(t, dir, ".log") {
			do(t, os.Remove(f))
		}
	}, "lacks changes", 0, false},
	{"sorted file with garbage", func(t *testing.T, dir string) { overwrite(t, files(t, dir, ".sst")[0], 2000, random(16)) }, ".sst", 0, false},
	{"sorted file cut off", func(t *testing.T, dir string) { do(t, os.Truncate(files(t, dir, ".sst")[0], 100)) }, ".sst", 0, false},
	{"sorted file missing", func(t *testing.T, dir string) { do(t, os.Remove(files(t, dir, ".sst")[0])) }, "sstable", 0, false},
	{"manifest cut off", func(t *testing.T, dir string) { do(t, os.Truncate(last(files(t, dir, "MANIFEST-*")), 10)) }, "store", 0, false},
	{"head with garbage", func(t *testing.T, dir string) { overwrite(t, filepath.Join(dir, "store.head"), 0, random(1024)) }, "head", 0, false},
	{"head missing", func(t *testing.T, dir string) { do(t, os.Remove(filepath.Join(dir, "store.head"))) }, "store.head", 0, false},
	{"all of it missing", func(t *testing.T, dir string) { do(t, os.RemoveAll(filepath.Join(dir, "store"))) }, "missing or empty", 0, true},
	{"all but the snapshots missing", func(t *testing.T, dir string) {
		do(t, os.RemoveAll(filepath.Join(dir, "store")), os.Remove(filepath.Join(dir, "store.head")))
	}, "snapshots", 0, true},
	{"that of an earlier version", func(t *testing.T, dir string) {
		do(t, os.RemoveAll(filepath.Join(dir, "store")), os.Remove(filepath.Join(dir, "store.head")), os.MkdirAll(filepath.Join(dir, "etcd", "member"), 0o700))
	}, "earlier version", 0, true},
	{"not to be read", func(t *testing.T, dir string) {
		do(t, filepath.WalkDir(dir, func(file string, _ fs.DirEntry, err error) error {
			do(t, err)
			return os.Chown(file, nobody, nobody)
		}), os.Chown(files(t, dir, ".sst")[0], 0, 0), os.Chmod(files(t, dir, ".sst")[0], 0o600))
	}, "permission denied", nobody, true},
}

// sluice runs a command of the program to its end.
func sluice(t *testing.T, binary string, user uint32, args ...string) (code int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = "/"
	if user != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("%v did not end:\n%s", args, out)
	}
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// TestDamagedStore checks that a damaged store is reported in one line with the fault and a remedy,
// and that the remedy restores the last snapshot.
func TestDamagedStore(t *testing.T) {
	live.Test(t)
	t.Parallel()
	folder := t.TempDir()
	binary := filepath.Join(folder, "sluice")
	copyFile(t, selfbuild.Binary(t), binary)
	do(t, os.Chmod(binary, 0o755), os.Chmod(folder, 0o755), os.Chmod(filepath.Dir(folder), 0o755))
	template := stored(t, binary)
	for _, c := range damages {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			do(t, os.Chmod(filepath.Dir(t.TempDir()), 0o755))
			dir := filepath.Join(t.TempDir(), "sluice")
			do(t, os.CopyFS(dir, os.DirFS(template)), os.Chmod(dir, 0o700), os.Chmod(filepath.Join(dir, "token"), 0o600))
			c.damage(t, dir)

			code, text := sluice(t, binary, c.user, "controller", "--set", "data_dir="+dir, "--set", "api.listen=127.0.0.1:0", "--set", "openflow.listen=[127.0.0.1:0]")
			sentence(t, code, text, c.want)
			code, text = sluice(t, binary, c.user, "store", "check", "--dir", dir)
			sentence(t, code, text, c.want)

			if c.user != 0 { // what it says to do
				do(t, os.Chown(files(t, dir, ".sst")[0], int(c.user), int(c.user)))
			} else if code, text = sluice(t, binary, 0, "store", "restore", "--latest", "--dir", dir); code != 0 {
				t.Fatalf("restore: %d %s", code, text)
			}
			if code, text = sluice(t, binary, c.user, "store", "check", "--dir", dir); code != 0 {
				t.Fatalf("check after it: %d %s", code, text)
			}
			aside, _ := filepath.Glob(filepath.Join(dir, "store.damaged-*"))
			if had := c.user == 0 && !c.nothing; had != (len(aside) == 1) {
				t.Errorf("kept aside: %v", aside)
			}
			again := startProgram(t, binary, dir)
			again.ready(t, dir)
			var s Status
			again.read(t, "/api/v1/status", &s)
			if len(s.Store.Damaged) != len(aside) {
				t.Errorf("kept aside: %v; status says %+v", aside, s.Store)
			}
			eventually(t, "it is ready, and says so with what is kept aside", func() bool {
				status, ready := again.ask(t, "GET", "/readyz", "")
				return status == 200 && strings.Contains(ready, "damaged store") == (len(aside) > 0)
			})
			if n := again.whitelisted(t); n != 5 {
				t.Errorf("%d entries, 5 before", n)
			}
			again.end(t, syscall.SIGTERM)
			again.calm(t)
		})
	}
}

// sentence fails unless a program ended with an error of one line.
func sentence(t *testing.T, code int, text, want string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := lines[len(lines)-1]
	if code != 1 || !strings.HasPrefix(last, "sluice: ") || !strings.Contains(last, want) || len(lines) > 5 {
		t.Errorf("exit code %d, want one line with %q:\n%.3000s", code, want, text)
	}
	if !strings.Contains(last, "store restore --latest") && !strings.Contains(last, "give the folder") {
		t.Errorf("the line does not say what helps: %s", last)
	}
	for _, word := range []string{"panic", "goroutine ", "fatal error"} {
		if strings.Contains(text, word) {
			t.Errorf("it shows %q:\n%.3000s", word, text)
		}
	}
}

// TestShortLogIsNoDamage checks that a log's end as a crash may leave it is no damage: nothing is
// lost, and the operator need not act.
func TestShortLogIsNoDamage(t *testing.T) {
	live.Test(t)
	t.Parallel()
	binary := selfbuild.Binary(t)
	dir := stored(t, binary)
	f := last(files(t, dir, ".log"))
	do(t, os.Truncate(f, usedOf(t, f)+4096)) // without most of what was allocated for it
	c := startProgram(t, binary, dir)
	c.ready(t, dir)
	if n := c.whitelisted(t); n != 5 {
		t.Errorf("%d entries, 5 before", n)
	}
	if status, text := c.whitelist(t, 100); status != 201 {
		t.Errorf("a write: %d %s", status, text)
	}
	c.end(t, syscall.SIGKILL)
	c.calm(t)
	if code, text := sluice(t, binary, 0, "store", "check", "--dir", dir); code != 0 {
		t.Errorf("check: %d %s", code, text)
	}
}

// TestKilledDuringSnapshot checks that a controller that is killed while it writes a snapshot
// leaves the earlier ones whole, and no file that looks like a snapshot.
func TestKilledDuringSnapshot(t *testing.T) {
	live.Test(t)
	t.Parallel()
	binary := selfbuild.Binary(t)
	dir := stored(t, binary)
	before, err := pebblestore.Snapshots(dir)
	do(t, err)
	c := startProgram(t, binary, dir, "store.snapshots.every=1s", "store.snapshots.keep=1000")
	eventually(t, "a snapshot is being written", func() bool {
		for range 1000 { // it takes some ten milliseconds
			if left, _ := filepath.Glob(filepath.Join(dir, "snapshots/.unfinished-*")); len(left) > 0 {
				return true
			}
		}
		return false
	})
	c.end(t, syscall.SIGKILL)
	after, err := pebblestore.Snapshots(dir)
	do(t, err)
	if len(after) < len(before) {
		t.Errorf("%d snapshots, %d before", len(after), len(before))
	}
	for _, s := range after {
		if code, text := sluice(t, binary, 0, "store", "restore", s.Path, "--dir", filepath.Join(t.TempDir(), "new")); code != 0 {
			t.Errorf("restore %s: %d %s", s.Path, code, text)
		}
	}
}
