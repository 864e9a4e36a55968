package registry_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/pebblestore"
)

// diskEnv tells a process that a test has started where its small disk is mounted.
const diskEnv = "SLUICE_TEST_SMALL_DISK"

// onSmallDisk runs the named test in a process of its own that sees a small file system. In that
// process it returns the mount point.
func onSmallDisk(t *testing.T) (disk string, here bool) {
	t.Helper()
	if disk := os.Getenv(diskEnv); disk != "" {
		return disk, true
	}
	live.Test(t)
	dir := t.TempDir()
	runtime.LockOSThread() // never unlocked: the mount goes with the thread
	err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("sluice-test", dir, "tmpfs", 0, "size=256m"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), diskEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v:\n%s", err, out)
	}
	return "", false
}

// fill takes all free space of the disk, and returns a function that gives it back.
func fill(t *testing.T, disk string) (free func()) {
	t.Helper()
	file := filepath.Join(disk, "somebody-elses")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}

// On a full disk leases are renewed, but no new lease is granted and no move is accepted. When
// there is room the renewed lease is stored. A controller that is restarted before that knows the
// lease as it was stored.
func TestLeasesAreRenewedOnAFullDisk(t *testing.T) {
	disk, here := onSmallDisk(t)
	if !here {
		return
	}
	st, err := pebblestore.Open(t.Context(), pebblestore.Options{Dir: filepath.Join(disk, "store"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	b := newBench(t)
	b.end()
	b.store.Store = st
	b.run()
	b.pool(nil)
	b.device("car", 1)
	b.device("late", 2)
	first := b.grant("car")

	free := fill(t, disk)
	full := func(err error) {
		t.Helper()
		var none *store.UnwritableError
		if !errors.As(err, &none) {
			t.Fatalf("%v, want that the disk is full", err)
		}
	}
	deadline := time.Now().Add(time.Minute)
	for err = nil; err == nil; err = st.Put(t.Context(), "somebody", []byte("else's")) {
		if time.Now().After(deadline) {
			t.Fatal("the store takes writes on a full disk")
		}
	}
	full(err)
	b.clock.add(50 * time.Second)
	renewed, err := b.Grant(b.ctx, "car", registry.Claim{IP: first.IP, Signed: b.clock.now()})
	b.must(err)
	if want := b.clock.now().Add(time.Minute); !renewed.Expires.Equal(want) || renewed.Granted != first.Granted {
		t.Fatalf("renewed %+v, want it until %v", renewed, want)
	}
	if !b.Signed("car").Equal(b.clock.now()) {
		t.Error("a signed request could be repeated")
	}
	wish, err := b.Offer("late", netip.Addr{}, network.PortRef{})
	b.must(err)
	_, err = b.Grant(b.ctx, "late", registry.Claim{IP: wish})
	full(err)
	_, err = b.Grant(b.ctx, "car", registry.Claim{IP: first.IP, Attachment: &registry.Attachment{MAC: mac(1)}})
	full(err)

	b.clock.add(30 * time.Second) // beyond the first lease
	if ended := b.expire(); len(ended) != 0 {
		t.Fatalf("ended: %+v", ended)
	}
	stored := func() registry.Lease {
		t.Helper()
		other := registry.New(registry.Options{Store: st, Clock: b.clock.now})
		b.must(other.Load(context.Background(), registry.Definitions{}))
		l, held := other.Lease("car")
		if !held {
			t.Fatal("the store has no lease")
		}
		return l
	}
	if l := stored(); !l.Expires.Equal(first.Expires) || l.IP != first.IP {
		t.Errorf("after a restart %+v, want the lease as it was written", l)
	}
	free()
	for deadline = time.Now().Add(time.Minute); !stored().Expires.Equal(renewed.Expires); b.expire() {
		if time.Now().After(deadline) {
			t.Fatalf("stored %+v, want %+v", stored(), renewed)
		}
	}
	if l := b.grant("late"); l.IP != wish {
		t.Errorf("the other device gets %v, want %v", l.IP, wish)
	}
}
