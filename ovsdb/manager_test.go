package ovsdb

import (
	"errors"
	"testing"
	"time"
)

// The database of a switch that stays away is given up, and who waits for it is told; and
// of many that are gone, those that went first.
func TestForgottenSwitches(t *testing.T) {
	up := []uint64{1}
	m := NewManager(ManagerOptions{
		Switches: func() []uint64 { return up },
		Target:   func(uint64) (string, error) { return "unix:/nonexistent/db.sock", nil },
	})
	t.Cleanup(m.tasks.Stop)
	o, err := m.Owner("us")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	m.checkSwitches(now)
	k, err := m.reconcilerOf(o, 1)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- k.ensure(t.Context(), nil) }() // ends with the switch
	known := func(want int, when string) {
		t.Helper()
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.switches) != want || len(m.databases) != min(want, 1) {
			t.Errorf("%s: %d switches, %d databases, want %d switches", when, len(m.switches), len(m.databases), want)
		}
	}
	up = nil
	m.checkSwitches(now)
	up = []uint64{1}
	m.checkSwitches(now.Add(keepDownFor))
	up = nil
	m.checkSwitches(now.Add(2 * keepDownFor))
	known(1, "just gone")
	m.checkSwitches(now.Add(4 * keepDownFor))
	known(0, "long gone")
	if err := <-waited; !errors.Is(err, errClosed) {
		t.Error(err)
	}
	for d := range uint64(3 * maxDownSwitches) {
		up = append(up, d+1)
	}
	m.checkSwitches(now)
	known(3*maxDownSwitches, "all there")
	up = nil
	m.checkSwitches(now)
	known(maxDownSwitches, "all gone")
}
