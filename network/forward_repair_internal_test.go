package network

import (
	"testing"
	"time"
)

// TestRepairPause checks that repairs take at most a fifth of the time, and that a repair which
// waited for a switch does not delay the next one for long.
func TestRepairPause(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: 0, time.Millisecond: 4 * time.Millisecond, 50 * time.Millisecond: 200 * time.Millisecond, 2 * time.Second: 200 * time.Millisecond,
	} {
		if got := repairPause(took); got != want {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
}
