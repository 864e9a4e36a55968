package classifier

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/internal/nettest"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/services/qos/mark"
)

// TestRemovedClassesAreRestored checks that the filter and the queues of a port are set up again
// when another program has removed them, and that a limit which was changed is set again.
func TestRemovedClassesAreRestored(t *testing.T) {
	h := nettest.NewHost(t)
	d := &Daemon{log: slog.New(slog.DiscardHandler), drift: drift.NewCounts(slog.New(slog.DiscardHandler)), socket: 1 << 20, limits: map[leafAt]leafLimit{}}
	port := ovsdb.Port{Name: "x", QoS: &ovsdb.QoS{
		Type: ovsdb.TypeHTB, Tags: map[string]string{ovsdb.OwnerTag: "test"},
		Root: ovsdb.Root{Rate: 1e7, Queues: []ovsdb.Queue{{ID: 0}, {ID: 1, Tags: mark.Entry{Queue: 1, Mark: 7}.Tags()}}},
	}}
	h.Must(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "x"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "y"})
	})
	// This is what Open vSwitch sets up.
	h.Run("sh", "-c", "tc qdisc add dev x root handle 1: htb default 1 && tc class add dev x parent 1: classid 1:fffe htb rate 10mbit && "+
		"tc class add dev x parent 1:fffe classid 1:1 htb rate 1mbit && tc class add dev x parent 1:fffe classid 1:2 htb rate 1mbit")
	sync := func() (restored int) {
		h.Must(func() error {
			k, err := readKernel()
			if err == nil {
				_, restored, err = d.syncPort(k, port)
			}
			return err
		})
		return restored
	}
	state := func() string {
		return h.Run("tc", "filter", "show", "dev", "x") + h.Run("tc", "qdisc", "show", "dev", "x")
	}
	sync()
	declared := state()
	if !strings.Contains(declared, "sluice-") || strings.Count(declared, leafType) != 2 {
		t.Fatal(declared)
	}
	for change, want := range map[string]int{
		"true":                          0,
		"tc filter del dev x parent 1:": 1,
		"tc qdisc del dev x parent 1:1": 1,
		"tc qdisc replace dev x parent 1:2 handle 77: pfifo limit 3":                                      1,
		"tc filter del dev x parent 1: && tc qdisc del dev x parent 1:1 && tc qdisc del dev x parent 1:2": 3,
	} {
		h.Run("sh", "-c", change)
		if n := sync(); n != want {
			t.Errorf("after %q %d things were restored, want %d", change, n, want)
		}
		if now := withoutNumbers(state()); now != withoutNumbers(declared) {
			t.Errorf("after %q it is\n%s\nand was\n%s", change, now, declared)
		}
		if n := sync(); n != 0 {
			t.Errorf("after %q %d things were restored again", change, n)
		}
	}
	h.Run("tc", "qdisc", "change", "dev", "x", "parent", "1:1", "handle", "1001:", leafType, "limit", "999")
	for at, l := range d.limits {
		d.limits[at] = leafLimit{l.packets, l.set.Add(-time.Minute)}
	}
	sync()
	if now := withoutNumbers(state()); now != withoutNumbers(declared) {
		t.Errorf("after a limit was changed it is\n%s\nand was\n%s", now, declared)
	}
}

// withoutNumbers removes the numbers of programs, which the kernel chooses anew, from the output of
// tc.
func withoutNumbers(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, " direct-action")
		name, _, _ = strings.Cut(name, " id ")
		out = append(out, strings.TrimSpace(name))
	}
	return strings.Join(out, "\n")
}
