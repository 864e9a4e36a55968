package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/store"
)

// breakEnv has the test's own program break a store and say what comes of it. It is a
// process of its own, since what is left of an etcd that has broken ends with its process.
const breakEnv = "SLUICE_TEST_BREAK"

// When etcd cannot write, whatever the reason, the process goes on, and every operation
// and Run say why.
func TestStoreBreaksWithASentence(t *testing.T) {
	if os.Getenv(breakEnv) != "" {
		fmt.Println(breakStore(t))
		os.Exit(0)
	}
	live.Test(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestStoreBreaksWithASentence$")
	cmd.Env = append(os.Environ(), breakEnv+"=yes")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the process ended with %v:\n%s", err, out)
	}
	for _, who := range []string{"write", "read", "watch", "run"} {
		if !strings.Contains(string(out), who+": etcdstore: ") {
			t.Errorf("%s says nothing", who)
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if strings.Contains(line, ": etcdstore: ") && (!strings.Contains(line, "no space left on device") || !strings.Contains(line, "make room")) {
			t.Errorf("line %q", line)
		}
	}
	if strings.Contains(string(out), "goroutine ") || t.Failed() {
		t.Errorf("output:\n%s", out)
	}
}

// breakStore fills a store's file system behind the back of what watches over it.
func breakStore(t *testing.T) error {
	dir := t.TempDir()
	runtime.LockOSThread() // never unlocked: the mount goes with the thread
	err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("sluice-test", dir, "tmpfs", 0, "size=64m"))
	if err != nil {
		return err
	}
	folder, err := unix.Open(dir, unix.O_PATH, 0) // seen by the other threads as well
	if err != nil {
		return err
	}
	seen := fmt.Sprintf("/proc/self/fd/%d", folder)
	s, err := OpenEmbedded(context.Background(), EmbeddedOptions{Dir: seen})
	if err != nil {
		return err
	}
	r := s.embedded.room
	r.mu.Lock()
	r.need, r.reserved = 0, math.MaxInt64/2
	r.mu.Unlock()
	if err := fillDisk(filepath.Join(seen, "somebody-elses")); err != nil {
		return err
	}
	for err == nil {
		err = s.Put(context.Background(), "a", make([]byte, 256<<10))
	}
	fmt.Println("write:", strings.TrimPrefix(err.Error(), "etcdstore: apply a: "))
	_, err = s.Get(context.Background(), "a")
	fmt.Println("read:", err)
	_, err = s.Watch(context.Background(), "")
	fmt.Println("watch:", err)
	fmt.Println("run:", s.Run(context.Background(), func(*store.NoRoomError) {}))
	return s.Close()
}

// fillDisk writes until nothing is free.
func fillDisk(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			return err
		}
	}
	return nil
}
