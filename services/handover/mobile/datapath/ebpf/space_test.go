package ebpf

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/live"
)

// inSpace runs f on a thread of its own in a new network namespace, which ends
// with it.
func inSpace(t *testing.T, f func() error) {
	t.Helper()
	live.Test(t)
	result := make(chan error, 1)
	var run func()
	run = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the main thread cannot end
			go run()
			runtime.UnlockOSThread()
			return
		}
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- err
			return
		}
		result <- f()
	}
	go run()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}
