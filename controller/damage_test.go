package controller

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/store/etcdstore"
)

// stored is a data folder with five entries of the whitelist, a snapshot of them, and a
// log of several files with snapshots of its own. young is its database of before.
func stored(t *testing.T, binary string) (dir, young string) {
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
		all, err := etcdstore.Snapshots(dir)
		return err == nil && len(all) > 0 && all[0].Time.After(written)
	})
	c.end(t, syscall.SIGTERM)
	young = filepath.Join(t.TempDir(), "db")
	copyFile(t, databaseOf(dir), young)
	s, err := etcdstore.OpenEmbedded(t.Context(), etcdstore.EmbeddedOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 50 {
		wg.Go(func() {
			for n := range 220 {
				if err := s.Put(t.Context(), fmt.Sprintf("bulk/%d-%d", w, n), bytes.Repeat([]byte{byte(n)}, 1024)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, young
}

func databaseOf(dir string) string { return filepath.Join(dir, "etcd/member/snap/db") }

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

// logsOf lists the files of the log, the oldest first.
func logsOf(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "etcd/member/wal/*.wal"))
	if err != nil || len(all) < 3 {
		t.Fatalf("files of the log: %v, %v; the test needs three", all, err)
	}
	return all
}

func lastLog(t *testing.T, dir string) string {
	t.Helper()
	all := logsOf(t, dir)
	return all[len(all)-1]
}

// usedOf is where the zeros begin that a file ends with.
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

func removeAll(t *testing.T, dir, pattern string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, pattern))
	do(t, err)
	for _, f := range all {
		do(t, os.Remove(f))
	}
}

// another makes the folder one of another etcd.
func another(t *testing.T, dir string) {
	t.Helper()
	do(t, os.RemoveAll(filepath.Join(dir, "etcd")))
	c := embed.NewConfig()
	c.Name, c.Dir, c.LogLevel = "other", filepath.Join(dir, "etcd"), "panic"
	peer, err := url.Parse("http://127.0.0.1:3380")
	do(t, err)
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	c.AdvertisePeerUrls, c.AdvertiseClientUrls = []url.URL{*peer}, []url.URL{*peer}
	c.InitialCluster = "other=" + peer.String()
	s, err := embed.StartEtcd(c)
	do(t, err)
	select {
	case <-s.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Error("the other etcd does not become ready")
	}
	s.Close()
}

// nobody is a user without rights.
const nobody = 65534

var damages = []struct {
	name   string
	damage func(t *testing.T, dir, young string)
	want   string
	user   uint32 // who runs the controller
}{
	{"log cut in the middle", func(t *testing.T, dir, _ string) {
		f := lastLog(t, dir)
		do(t, os.Truncate(f, usedOf(t, f)/2))
	}, "cut off", 0},
	{"log cut at its end", func(t *testing.T, dir, _ string) {
		f := lastLog(t, dir)
		do(t, os.Truncate(f, usedOf(t, f)-1500)) // an entry at least: each has a kilobyte
	}, "cut off", 0},
	{"log with garbage", func(t *testing.T, dir, _ string) { f := lastLog(t, dir); overwrite(t, f, usedOf(t, f)/2, random(4096)) }, "log", 0},
	{"log of size zero", func(t *testing.T, dir, _ string) { do(t, os.Truncate(lastLog(t, dir), 0)) }, "cut off", 0},
	{"all of the log of size zero", func(t *testing.T, dir, _ string) {
		for _, f := range logsOf(t, dir) {
			do(t, os.Truncate(f, 0))
		}
	}, "log", 0},
	{"a file of the log missing", func(t *testing.T, dir, _ string) { all := logsOf(t, dir); do(t, os.Remove(all[len(all)-2])) }, "log", 0},
	{"log missing", func(t *testing.T, dir, _ string) { removeAll(t, dir, "etcd/member/wal/*") }, "log is missing", 0},
	{"database cut in the middle", func(t *testing.T, dir, _ string) {
		do(t, os.Truncate(databaseOf(dir), usedOf(t, databaseOf(dir))/2&^4095))
	}, "cut off", 0},
	{"database cut within its head", func(t *testing.T, dir, _ string) { do(t, os.Truncate(databaseOf(dir), 100)) }, "database", 0},
	{"database with garbage pages", func(t *testing.T, dir, _ string) {
		overwrite(t, databaseOf(dir), 3*4096, random(int(usedOf(t, databaseOf(dir))/2)))
	}, "database", 0},
	{"database without its head", func(t *testing.T, dir, _ string) { overwrite(t, databaseOf(dir), 0, make([]byte, 8192)) }, "database", 0},
	{"database missing", func(t *testing.T, dir, _ string) { do(t, os.Remove(databaseOf(dir))) }, "missing", 0},
	{"database of size zero", func(t *testing.T, dir, _ string) { do(t, os.Truncate(databaseOf(dir), 0)) }, "is empty", 0},
	{"database of before", func(t *testing.T, dir, young string) { copyFile(t, young, databaseOf(dir)) }, "older than its log", 0},
	{"snapshots of the log missing, and its beginning", func(t *testing.T, dir, _ string) {
		removeAll(t, dir, "etcd/member/snap/*.snap")
		do(t, os.Remove(logsOf(t, dir)[0]))
	}, "beginning", 0},
	{"all of it missing", func(t *testing.T, dir, _ string) { do(t, os.RemoveAll(filepath.Join(dir, "etcd"))) }, "snapshots", 0},
	{"another member's", func(t *testing.T, dir, _ string) { another(t, dir) }, "another etcd", 0},
	{"not to be read", func(t *testing.T, dir, _ string) {
		do(t, filepath.WalkDir(dir, func(file string, _ fs.DirEntry, err error) error {
			do(t, err)
			return os.Chown(file, nobody, nobody)
		}), os.Chown(databaseOf(dir), 0, 0))
	}, "permission denied", nobody},
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

// A damaged store is a sentence that says what is wrong and what helps; what it says to do
// brings back the last snapshot.
func TestDamagedStore(t *testing.T) {
	live.Test(t)
	t.Parallel()
	folder := t.TempDir()
	binary := filepath.Join(folder, "sluice")
	copyFile(t, selfbuild.Binary(t), binary)
	do(t, os.Chmod(binary, 0o755), os.Chmod(folder, 0o755), os.Chmod(filepath.Dir(folder), 0o755))
	template, young := stored(t, binary)
	for _, c := range damages {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			do(t, os.Chmod(filepath.Dir(t.TempDir()), 0o755))
			dir := filepath.Join(t.TempDir(), "sluice")
			do(t, os.CopyFS(dir, os.DirFS(template)), os.Chmod(dir, 0o700), os.Chmod(filepath.Join(dir, "token"), 0o600))
			c.damage(t, dir, young)

			code, text := sluice(t, binary, c.user, "controller", "--set", "data_dir="+dir, "--set", "api.listen=127.0.0.1:0", "--set", "openflow.listen=[127.0.0.1:0]")
			sentence(t, code, text, c.want)
			code, text = sluice(t, binary, c.user, "store", "check", "--dir", dir)
			sentence(t, code, text, c.want)

			if c.user != 0 { // what it says to do
				do(t, os.Chown(databaseOf(dir), int(c.user), int(c.user)))
			} else if code, text = sluice(t, binary, 0, "store", "restore", "--latest", "--dir", dir); code != 0 {
				t.Fatalf("restore: %d %s", code, text)
			}
			if code, text = sluice(t, binary, c.user, "store", "check", "--dir", dir); code != 0 {
				t.Fatalf("check after it: %d %s", code, text)
			}
			if aside, _ := filepath.Glob(filepath.Join(dir, "etcd.damaged-*")); len(aside) != 1 && c.user == 0 && c.name != "all of it missing" {
				t.Errorf("kept aside: %v", aside)
			}
			again := startProgram(t, binary, dir)
			again.ready(t, dir)
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

// What a crash may leave of a log's end is no damage: nothing is lost, and nothing is asked.
func TestShortLogIsNoDamage(t *testing.T) {
	live.Test(t)
	t.Parallel()
	binary := selfbuild.Binary(t)
	dir, _ := stored(t, binary)
	f := lastLog(t, dir)
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

// A controller that is killed while it writes a snapshot leaves those of before whole, and
// nothing that looks like one.
func TestKilledDuringSnapshot(t *testing.T) {
	live.Test(t)
	t.Parallel()
	binary := selfbuild.Binary(t)
	dir, _ := stored(t, binary)
	before, err := etcdstore.Snapshots(dir)
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
	after, err := etcdstore.Snapshots(dir)
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
