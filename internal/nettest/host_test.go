package nettest

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// Hosts on a cable reach each other at once, by a thread and by a program, and the test's own
// namespace has no part in it.
func TestCable(t *testing.T) {
	a, b := NewHost(t), NewHost(t)
	at, to := netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("10.9.0.2/24")
	Cable(t, Port{On: a, Name: "left", Address: at}, Port{On: b, Name: "right", Address: to})
	a.Run("ping", "-c", "1", "-w", "30", to.Addr().String())
	b.Must(func() error {
		_, err := netlink.LinkByName("right")
		return err
	})
	if err := a.Do(func() error { _, err := netlink.LinkByName("right"); return err }); err == nil {
		t.Error("a host has the other's interface")
	}
	out, err := exec.Command("ip", "-br", "link").CombinedOutput()
	if err != nil || strings.Contains(string(out), "left@") {
		t.Errorf("the test's own namespace: %v: %s", err, out)
	}
}

// An interface whose other end is down has no carrier.
func TestNoCarrier(t *testing.T) {
	a, b := NewHost(t), NewHost(t)
	Cable(t, Port{On: a, Name: "left"}, Port{On: b, Name: "right"})
	b.Run("ip", "link", "set", "right", "down")
	until := time.Now().Add(carrierTimeout)
	for strings.Contains(a.Run("ip", "link", "show", "left"), "state UP") {
		if time.Now().After(until) {
			t.Fatal("an unplugged cable has a carrier")
		}
	}
}
