package device

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// lifetime matches the remaining lifetimes of an address.
var lifetime = regexp.MustCompile(`(valid|preferred)_lft \S+`)

// TestRestoreLease checks that the address and the routes of a lease are restored if another
// program changes them, and that its own routes are left alone.
func TestRestoreLease(t *testing.T) {
	namespace(t)
	ip(t, "link", "add", "v0", "type", "veth", "peer", "name", "w0")
	ip(t, "link", "set", "w0", "up")
	ip(t, "link", "set", "v0", "up")
	ip(t, "-6", "addr", "flush", "dev", "v0")
	l := leaseWith("10.8.0.10")
	if err := Configure("v0", l, 40); err != nil {
		t.Fatal(err)
	}
	// Lifetimes pass.
	declared := func() string { return strings.ReplaceAll(lifetime.ReplaceAllString(picture(t, "v0"), ""), "  ", " ") }
	before := declared()
	for _, c := range []struct {
		change string
		want   int
	}{
		{"", 0},
		{"addr flush dev v0", 2},
		{"route del default dev v0", 1},
		{"route flush dev v0", 2},
		{"addr add 192.0.2.1/24 dev v0", 1},
		{"route change default via 10.8.0.1 dev v0 src 10.8.0.10 metric 40 proto dhcp onlink mtu 1000", 1},
	} {
		if c.change != "" {
			ip(t, strings.Fields(c.change)...)
		}
		for _, want := range []int{c.want, 0} {
			if n, err := RestoreLease("v0", l, 40); n != want || err != nil {
				t.Errorf("after %q there are %d differences, want %d: %v", c.change, n, want, err)
			}
		}
		if now := declared(); now != before {
			t.Errorf("after %q it is\n%s\nand was\n%s", c.change, now, before)
		}
	}
	ip(t, "route", "add", "203.0.113.0/24", "dev", "v0", "proto", "static")
	if n, err := RestoreLease("v0", l, 40); n != 0 || err != nil {
		t.Errorf("another program's route makes %d differences: %v", n, err)
	}
	l.Expires = time.Now().Add(-time.Second)
	ip(t, "addr", "flush", "dev", "v0")
	if n, err := RestoreLease("v0", l, 40); n != 0 || err != nil || strings.Contains(declared(), "inet") {
		t.Errorf("an expired lease makes %d differences: %v", n, err)
	}
	if _, err := RestoreLease("none", l, 40); err == nil {
		t.Error("an interface that does not exist gives no error")
	}
}

// TestRestoreAdopted checks that what another program adds to an adopted link is removed again,
// that a link which was set down stays down, and that the journal still undoes the adoption.
func TestRestoreAdopted(t *testing.T) {
	namespace(t)
	ip(t, "link", "add", "m0", "type", "veth", "peer", "name", "n0")
	ip(t, "link", "set", "n0", "up")
	ip(t, "link", "set", "m0", "up")
	ip(t, "addr", "add", "192.0.2.7/24", "dev", "m0")
	before := picture(t, "m0")
	j, err := OpenJournal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.Adopt("m0"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change [][]string
		want   int
	}{
		{nil, 0},
		{[][]string{{"addr", "add", "198.51.100.1/24", "dev", "m0"}}, 1},
		{[][]string{{"addr", "add", "198.51.100.1/24", "dev", "m0"}, {"route", "add", "default", "via", "198.51.100.2", "dev", "m0"}}, 2},
		{[][]string{{"link", "set", "m0", "down"}}, 0},
	} {
		for _, args := range c.change {
			ip(t, args...)
		}
		for _, want := range []int{c.want, 0} {
			if n, err := RestoreAdopted("m0"); n != want || err != nil {
				t.Errorf("after %v there are %d differences, want %d: %v", c.change, n, want, err)
			}
		}
		if got := picture(t, "m0"); got != "" {
			t.Errorf("after %v it has\n%s", c.change, got)
		}
	}
	if !strings.Contains(ip(t, "link", "show", "m0"), "state DOWN") {
		t.Error("a link that was set down is up")
	}
	ip(t, "link", "set", "m0", "up")
	if err := j.Undo(nil); err != nil {
		t.Fatal(err)
	}
	if now := picture(t, "m0"); now != before {
		t.Errorf("it is\n%s\nand was\n%s", now, before)
	}
}
