package controller

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/selfbuild"
)

// tripExt4 makes an ext4 find an error, after which it is read-only, as it is when its disk fails.
func tripExt4(t *testing.T, disk string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "findmnt", "-n", "-o", "SOURCE", disk).Output()
	do(t, err)
	device := filepath.Base(strings.TrimSpace(string(out)))
	do(t, exec.CommandContext(t.Context(), "mount", "-o", "remount,errors=remount-ro", disk).Run(),
		os.WriteFile("/sys/fs/ext4/"+device+"/trigger_fs_error", []byte("a test"), 0))
}

// startsNot fails unless a controller on the disk ends with a line that names a remedy.
func startsNot(t *testing.T, binary, dir string) {
	t.Helper()
	c := startProgram(t, binary, dir)
	c.ends(t)
	if text := c.log.String(); c.cmd.ProcessState.ExitCode() != 1 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "read-only") || !strings.Contains(text, "data_dir") {
		t.Errorf("%v:\n%s", c.cmd.ProcessState, text)
	}
}

// TestDiskTurnsReadOnly checks that a disk that becomes read-only prevents only the controller's
// writes, and that a controller that is started on it names a remedy.
func TestDiskTurnsReadOnly(t *testing.T) {
	live.Test(t)
	t.Parallel()
	binary := selfbuild.Binary(t)
	disk := smallDisk(t, "ext4", "160m")
	dir := filepath.Join(disk, "sluice")
	c, way, stop := startCarrying(t, binary, dir)
	for n := range 20 {
		if status, text := c.whitelist(t, n); status != http.StatusCreated {
			t.Fatalf("add an entry: %d %s", status, text)
		}
	}
	tripExt4(t, disk)
	c.refusesWrites(t, way, disk, "read-only", 1001, 20)
	c.tells(t, "store.writes.refused")
	c.end(t, syscall.SIGTERM)
	stop()
	c.calm(t)
	startsNot(t, binary, dir)
	code, text := sluice(t, binary, 0, "store", "check", "--dir", dir)
	if code != 0 {
		t.Errorf("check: %d %s", code, text)
	}
}

// TestReadOnlyDiskComesBack checks that writes are accepted without a restart when the disk can be
// written again.
func TestReadOnlyDiskComesBack(t *testing.T) {
	live.Test(t)
	t.Parallel()
	binary := selfbuild.Binary(t)
	disk := smallDisk(t, "tmpfs", "160m")
	dir := filepath.Join(disk, "sluice")
	c, way, stop := startCarrying(t, binary, dir)
	if status, text := c.whitelist(t, 1); status != http.StatusCreated {
		t.Fatalf("add an entry: %d %s", status, text)
	}
	do(t, unix.Mount(disk, disk, "", unix.MS_BIND, ""), unix.Mount("", disk, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	c.refusesWrites(t, way, disk, "read-only", 1001, 1)
	c.tells(t, "store.writes.refused")
	do(t, unix.Unmount(disk, 0))
	eventually(t, "writes are accepted again", func() bool { status, _ := c.whitelist(t, 100); return status == http.StatusCreated })
	c.tells(t, "store.writes.resumed")
	entries := c.whitelisted(t)
	c.end(t, syscall.SIGKILL)
	stop()
	c = startProgram(t, binary, dir)
	c.ready(t, dir)
	if n := c.whitelisted(t); n != entries {
		t.Errorf("after a restart %d entries, %d before", n, entries)
	}
	c.end(t, syscall.SIGTERM)
	c.calm(t)
}
