package agent

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/kit/control"
)

func TestPortsRestAndAreTakenInTurn(t *testing.T) {
	now := time.Now()
	p := newPorts(control.PortRange{First: 100, Last: 103})
	p.now = func() time.Time { return now }
	var order []uint16
	for range 4 {
		port, err := p.take()
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, port)
	}
	if _, err := p.take(); !errors.Is(err, errNoPort) {
		t.Fatalf("a fifth port of four: %v", err)
	}
	p.give(order[2])
	now = now.Add(portCooldown / 2)
	p.give(order[0])
	if port, err := p.take(); !errors.Is(err, errNoPort) {
		t.Fatalf("port %d did not rest: %v", port, err)
	}
	now = now.Add(portCooldown / 2)
	if port, err := p.take(); err != nil || port != order[2] {
		t.Errorf("took %d, %v; want %d, the longest unused", port, err, order[2])
	}
	if _, err := p.take(); !errors.Is(err, errNoPort) {
		t.Errorf("the second has rested for half its time only: %v", err)
	}
	now = now.Add(portCooldown)
	if port, err := p.take(); err != nil || port != order[0] {
		t.Errorf("took %d, %v; want %d", port, err, order[0])
	}
}

func TestPortsPassOverWhatIsSomebodyElses(t *testing.T) {
	p := newPorts(control.PortRange{First: 1, Last: 10})
	calls := 0
	port, err := p.bind(func(uint16) error {
		if calls++; calls < 4 {
			return unix.EADDRINUSE
		}
		return nil
	})
	if err != nil || calls != 4 || p.n != 9 {
		t.Errorf("port %d, %v after %d tries, %d left", port, err, calls, p.n)
	}
	if _, err := p.bind(func(uint16) error { return unix.EACCES }); !errors.Is(err, unix.EACCES) || p.n != 9 {
		t.Errorf("got %v with %d left, want the error and all ports back", err, p.n)
	}
}
