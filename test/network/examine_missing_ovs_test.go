package network_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/linkprobe"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// What goes wrong with switches, ports and hosts of a network of Open vSwitch is named, one
// after the other: nothing at first, then one address at two hosts, a host that lost its
// address, a port that was taken out, and another controller that makes itself master.
func TestMissingOnOpenVSwitchIsFound(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("netmiss", 2, delayline.Params{}))
	s1, s2 := openflow.DatapathID(l.Switch("s1").DPID()), openflow.DatapathID(l.Switch("s2").DPID())
	link := between(t, l, "s1", "s2")
	trunk, err := l.Switch("s1").Port(link)
	if err != nil {
		t.Fatal(err)
	}
	h1, h2 := l.Host("h1"), l.Host("h2")
	n, _ := run(t, l, network.Config{
		Role: openflow.RoleMaster, Names: map[openflow.DatapathID]string{s1: "one", s2: "two"},
		PortRoles: map[network.PortRef]network.PortRole{{Switch: s1, Port: uint32(trunk)}: network.PortTrunk},
	}, func(n *network.Network) {
		n.Doctor().ExamineAddresses(func() []diagnosis.Needed { return []diagnosis.Needed{{Addr: h1.Addr(), Who: "the first host"}} })
	})
	ready(t, n, 2, 1, 2)
	do := func(h *lab.LiveHost, args ...string) {
		t.Helper()
		if out, err := h.Command(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	do(h1, "ping", "-n", "-q", "-c", "2", h2.Addr().String())
	find := func(what string, want ...string) string {
		t.Helper()
		r := networktest.Diagnose(t, n, linkprobe.DefaultMTU)
		got := networktest.Faults(r)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: found %q, want %s", what, got, w)
			}
		}
		if len(want) == 0 && got != "" {
			t.Errorf("%s: found %q", what, got)
		}
		return fmt.Sprint(r.Findings)
	}
	find("sound")

	mac := h1.MAC()
	do(h2, "ip", "link", "set", "eth0", "address", fmt.Sprintf("%x:%x:%x:%x:%x:%x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]))
	nobody := h2.Addr()
	for range 12 {
		nobody = nobody.Next()
		_ = h2.Command(t.Context(), "ping", "-n", "-q", "-c", "1", "-W", "1", nobody.String()).Run() // nobody answers
	}
	find("a host that is at two places", "flapping")

	at, _ := n.HostByIP(h1.Addr())
	do(h1, "ip", "-4", "addr", "flush", "dev", "eth0")
	find("a host that lost its address", fmt.Sprintf("silent %d/%d", at.At.Switch, at.At.Port))

	if out, err := l.Switch("s1").Vsctl(t.Context(), "--bare", "--columns=name", "find", "Interface", fmt.Sprintf("ofport=%d", trunk)); err != nil {
		t.Fatal(err)
	} else if _, err := l.Switch("s1").Vsctl(t.Context(), "del-port", strings.TrimSpace(out)); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "the link to go", func() bool { return len(n.Topology().Links) == 0 })
	if words := find("a port that was taken out", "gone", fmt.Sprintf("no-port %d/%d", s1, trunk)); !strings.Contains(words, "has no port") {
		t.Errorf("the port that was taken out is not named: %s", words)
	}

	ln, err := l.Control().Listen("tcp", netip.AddrPortFrom(l.ControllerAddr().Addr(), 0).String())
	if err != nil {
		t.Fatal(err)
	}
	other, _ := networktest.Start(t, network.Config{Role: openflow.RoleMaster, Listeners: []net.Listener{ln}})
	bridge, err := l.Switch("s2").Vsctl(t.Context(), "list-br")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := l.Switch("s2").Vsctl(t.Context(), "set-controller", strings.TrimSpace(bridge), "tcp:"+l.ControllerAddr().String(), "tcp:"+ln.Addr().String()); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	networktest.Up(t, other, s2)
	find("another controller that is master", fmt.Sprintf("slave %d/0", s2))
}
