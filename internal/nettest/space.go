// Package nettest gives tests a network of their own.
package nettest

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/live"
)

// Namespace puts the test's thread into a new network namespace, to the test's end: the thread is
// thrown away with it. Without root the test is skipped.
func Namespace(tb testing.TB) {
	tb.Helper()
	live.Test(tb)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		tb.Fatal(err)
	}
}
