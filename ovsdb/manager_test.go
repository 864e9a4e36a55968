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
	m.look(now)
	k, err := m.keeper(o, 1)
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
	m.look(now)
	up = []uint64{1}
	m.look(now.Add(forgetAfter))
	up = nil
	m.look(now.Add(2 * forgetAfter))
	known(1, "just gone")
	m.look(now.Add(4 * forgetAfter))
	known(0, "long gone")
	if err := <-waited; !errors.Is(err, errEnded) {
		t.Error(err)
	}
	for d := range uint64(3 * keptGone) {
		up = append(up, d+1)
	}
	m.look(now)
	known(3*keptGone, "all there")
	up = nil
	m.look(now)
	known(keptGone, "all gone")
}
