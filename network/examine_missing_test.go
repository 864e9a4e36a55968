package network_test

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/linkprobe"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// TestLinksThatWereThereAreMissed checks that a lost link is reported until it exists again: with
// its fault while both its ports are up, and with the port that is down otherwise.
func TestLinksThatWereThereAreMissed(t *testing.T) {
	t.Parallel()
	n, _ := networktest.Start(t, network.Config{})
	switches, cables := joined(t, n)
	links := func(want int) {
		networktest.Eventually(t, "links to be as they should", func() bool { return len(n.Topology().Links) == want })
	}
	nothing := func([]byte) [][]byte { return nil }
	cables[0].spoil.Store(&nothing)
	cables[1].spoil.Store(&nothing)
	links(0)
	if got := networktest.Faults(networktest.Diagnose(t, n, linkprobe.DefaultMTU)); got != "dead 1/2-2/2" {
		t.Errorf("a link that carries nothing: %q", got)
	}
	if err := switches[1].SetPort(2, false); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "the port to be down", func() bool {
		s, _ := n.Switch(2)
		p, _ := s.Port(2)
		return !p.Up()
	})
	if got := networktest.Faults(networktest.Diagnose(t, n, linkprobe.DefaultMTU)); got != "gone 1/2-2/2" && got != "gone 2/2-1/2" {
		t.Errorf("a link of which a port is down: %q", got)
	}
	cables[0].spoil.Store(nil)
	cables[1].spoil.Store(nil)
	if err := switches[1].SetPort(2, true); err != nil {
		t.Fatal(err)
	}
	links(2)
	if got := networktest.Faults(networktest.Diagnose(t, n, linkprobe.DefaultMTU)); got != "" {
		t.Errorf("when it is there again: %q", got)
	}
}

// TestConfiguredSwitchesAreMissed checks that configured switches and ports that do not exist are
// reported.
func TestConfiguredSwitchesAreMissed(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{
		Names:      map[openflow.DatapathID]string{1: "here", 9: "away"},
		PortRoles:  map[network.PortRef]network.PortRole{{Switch: 1, Port: 7}: network.PortTrunk},
		Capacities: map[network.PortRef]uint64{{Switch: 1, Port: 2}: 1e6},
	})
	joined(t, n)
	if got := networktest.Faults(networktest.Diagnose(t, n, linkprobe.DefaultMTU)); got != "no-port 1/7, absent 9/0" {
		t.Errorf("got %q", got)
	}
}

// TestNeededHostsAreAsked checks the probing of addresses that services need: one that answers is
// not reported, one that no longer answers is, and so is one that no host has.
func TestNeededHostsAreAsked(t *testing.T) {
	t.Parallel()
	var silent atomic.Bool
	addr := func(i int) netip.Addr { return networktest.HostAddr(i).Addr() }
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) {
		n.Doctor().ExamineAddresses(func() []diagnosis.Needed {
			return []diagnosis.Needed{{Addr: addr(1), Who: "one"}, {Addr: addr(2), Who: "two", Drift: "restores again and again", DriftRemedy: "find it"}, {Addr: addr(3), Who: "three"}}
		})
	})
	var s *fake.Switch
	s = fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, OnOutput: func(port uint32, f []byte) {
		h, _ := packet.Parse(f)
		if port == 1 && h.Has(packet.ARP) && h.Dst == addr(1) && !silent.Load() {
			_, _ = s.Receive(1, packet.AppendARP(nil, packet.Frame{Dst: h.EthSrc, Src: networktest.HostMAC(1)}, packet.ARPMessage{
				Op: packet.ARPReply, SenderMAC: networktest.HostMAC(1), Sender: addr(1), TargetMAC: h.EthSrc, Target: h.Src,
			}))
		}
	}})
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 2)
	for _, i := range []int{1, 2} {
		if _, err := s.Receive(uint32(i), packet.AppendARPRequest(nil, networktest.HostMAC(i), addr(i), addr(99), 0)); err != nil {
			t.Fatal(err)
		}
	}
	networktest.Eventually(t, "the hosts to be known", func() bool { return len(n.Hosts()) == 2 })
	if got := networktest.Faults(networktest.Diagnose(t, n, linkprobe.DefaultMTU)); got != "no-host 0/0, drifting 1/2, silent 1/2" {
		t.Errorf("found %q", got)
	}
	silent.Store(true)
	if got := networktest.Faults(networktest.Diagnose(t, n, linkprobe.DefaultMTU)); got != "no-host 0/0, silent 1/1, drifting 1/2, silent 1/2" {
		t.Errorf("found %q when the first is silent, too", got)
	}
}
