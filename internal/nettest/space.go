// Package nettest gives tests a network of their own.
package nettest

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/live"
)

// Namespace puts the test's thread into a new network namespace until the test ends, when both are
// discarded. It skips the test if the process is not root.
func Namespace(tb testing.TB) {
	tb.Helper()
	live.Test(tb)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		tb.Fatal(err)
	}
}
