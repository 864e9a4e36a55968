// Package live marks the tests that need root and the real programs with which Sluice works: Open
// vSwitch, network namespaces, DHCP clients, a browser. They are ring 2 of the test suite (make
// test-live); CONTRIBUTING.md describes the rings.
package live

import (
	"os"
	"testing"
)

// leftOut is the message of a test that is skipped because of -short. The check of skipped
// tests (scripts/skips.sh) ignores tests that were skipped with it.
const leftOut = "live test, left out by -short"

// Test skips the calling test under -short or without root. A test calls it first, before it
// builds or starts anything. lab.New calls it as well.
func Test(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip(leftOut)
	}
	if os.Geteuid() != 0 {
		tb.Skip("live test, needs root")
	}
}
