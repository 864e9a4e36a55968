package hosts_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

func macOf(i int) (m openflow.MAC) {
	m[0] = 2
	binary.BigEndian.PutUint32(m[2:], uint32(i))
	return m
}

func open(o hosts.Options) *hosts.Table {
	o.Edge = func(topology.PortRef) bool { return true }
	return hosts.New(o)
}

func saw(t *hosts.Table, mac openflow.MAC, d openflow.DatapathID, port uint32, now time.Time) []hosts.Change {
	return t.Learn(&packet.Headers{EthSrc: mac}, topology.PortRef{Switch: d, Port: port}, now)
}

// TestMadeUpHostsHarmNoOthers checks that invented hosts fill the share of their switch only:
// hosts elsewhere find room, and hosts that were seen more than once are not evicted.
func TestMadeUpHostsHarmNoOthers(t *testing.T) {
	tab := open(hosts.Options{MaxHosts: 100, MaxPerSwitch: 60, MaxPerPort: 40})
	now := time.Now()
	for i := range 5 { // real hosts at the same switch
		saw(tab, macOf(i), 1, 9, now)
		saw(tab, macOf(i), 1, 9, now.Add(2*time.Second))
	}
	for i := 1000; i < 3000; i++ {
		now = now.Add(time.Millisecond)
		saw(tab, macOf(i), 1, uint32(i%2), now)
	}
	if n := tab.Len(); n != 60 {
		t.Errorf("%d hosts of one switch, want its share, 60", n)
	}
	for i := 5000; i < 5200; i++ {
		saw(tab, macOf(i), 2, uint32(i%7), now)
	}
	if n := tab.Len(); n != 100 {
		t.Errorf("%d hosts, want as many as there may be, 100", n)
	}
	if changes := saw(tab, macOf(7000), 3, 1, now); len(changes) != 2 || changes[0].Kind != hosts.Added || changes[1].Kind != hosts.Removed {
		t.Errorf("a host of a third switch: %+v, want it added and another removed", changes)
	}
	for i := range 5 {
		if _, ok := tab.Lookup(macOf(i), 0); !ok {
			t.Errorf("host %d had to give way", i)
		}
	}
}

// TestFullOfRealHostsIsTold checks that a new host is refused, with a change that says so, if
// all others have been seen again.
func TestFullOfRealHostsIsTold(t *testing.T) {
	tab := open(hosts.Options{MaxPerPort: 3})
	now := time.Now()
	for i := range 3 {
		saw(tab, macOf(i), 1, 1, now)
		saw(tab, macOf(i), 1, 1, now.Add(2*time.Second))
	}
	changes := saw(tab, macOf(9), 1, 1, now.Add(3*time.Second))
	if len(changes) != 1 || changes[0].Kind != hosts.ClaimRefused || tab.Refused()[hosts.Full] != 1 {
		t.Errorf("one more: %+v", changes)
	}
}

// TestHostsOfDepartedSwitchesGo checks that hosts of a switch that does not return are removed,
// and those of one that does stay.
func TestHostsOfDepartedSwitchesGo(t *testing.T) {
	tab := open(hosts.Options{})
	now := time.Now()
	saw(tab, macOf(1), 1, 1, now)
	saw(tab, macOf(2), 2, 1, now)
	tab.SwitchDown(1, now)
	tab.SwitchDown(2, now)
	tab.SwitchUp(2, now)
	if gone := tab.Expire(now.Add(30 * time.Second)); len(gone) != 0 {
		t.Errorf("gone at once: %+v", gone)
	}
	if gone := tab.Expire(now.Add(2 * time.Minute)); len(gone) != 1 || gone[0].Host.MAC != macOf(1) {
		t.Errorf("gone: %+v, want the one host of the switch that has left", gone)
	}
}

// BenchmarkHostsComeAndGo measures the time for one host from its first packet to the removal of
// its switch, beside many others. It must not grow with their number.
func BenchmarkHostsComeAndGo(b *testing.B) {
	const full = hosts.DefaultMaxHosts
	for _, count := range []int{full / 16, full / 4, full} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			now := time.Now()
			for range b.N {
				tab := open(hosts.Options{})
				for i := range count {
					saw(tab, macOf(i), openflow.DatapathID(i%16), uint32(i/16%48), now)
				}
				for d := range openflow.DatapathID(16) {
					tab.RemoveSwitch(d)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/host")
		})
	}
}

// TestPinnedHostsAreReplaced checks that pinning known hosts moves them and removes hosts that
// contradict the pins, and that hosts which are no longer pinned may move.
func TestPinnedHostsAreReplaced(t *testing.T) {
	server := netip.MustParseAddr("10.0.0.1")
	tab, now := open(hosts.Options{}), time.Now()
	arp := func(mac openflow.MAC, addr netip.Addr, port uint32) []hosts.Change {
		now = now.Add(time.Second)
		h, err := packet.Parse(packet.AppendARPRequest(nil, mac, addr, netip.MustParseAddr("10.0.0.9"), 0))
		if err != nil {
			t.Fatal(err)
		}
		return tab.Learn(&h, topology.PortRef{Switch: 1, Port: port}, now)
	}
	arp(macOf(1), netip.MustParseAddr("10.0.0.2"), 5)
	arp(macOf(2), server, 2)
	arp(macOf(3), netip.MustParseAddr("10.0.0.3"), 3)
	pin := map[netip.Addr]hosts.Pin{server: {MAC: macOf(1), At: topology.PortRef{Switch: 1, Port: 1}}}
	if c := tab.SetPinned(pin); len(c) != 2 || c[0].Kind != hosts.Removed || c[0].Host.MAC != macOf(1) || c[1].Host.MAC != macOf(2) {
		t.Errorf("those elsewhere, and with the address, are forgotten: %+v", c)
	}
	if c := arp(macOf(2), server, 2); len(c) != 1 || c[0].Kind != hosts.ClaimRefused {
		t.Errorf("another host: %+v", c)
	}
	if c := arp(macOf(1), server, 1); len(c) != 1 || c[0].Kind != hosts.Added {
		t.Errorf("the host itself: %+v", c)
	}
	if c := tab.SetPinned(nil); len(c) != 0 {
		t.Errorf("pinned no more: %+v", c)
	}
	if c := arp(macOf(1), server, 7); len(c) != 1 || c[0].Kind != hosts.Moved {
		t.Errorf("it may move: %+v", c)
	}
}

// TestPinnedHostsStay checks that no packet moves a pinned host, by its MAC address or its IP
// address.
func TestPinnedHostsStay(t *testing.T) {
	server, home := netip.MustParseAddr("10.0.0.1"), topology.PortRef{Switch: 1, Port: 1}
	tab := open(hosts.Options{Pinned: map[netip.Addr]hosts.Pin{server: {MAC: macOf(1), At: home}}})
	now := time.Now()
	claim := func(mac openflow.MAC, port uint32) []hosts.Change {
		now = now.Add(time.Second)
		frame := packet.AppendARPRequest(nil, mac, server, netip.MustParseAddr("10.0.0.9"), 0)
		h, err := packet.Parse(frame)
		if err != nil {
			t.Fatal(err)
		}
		return tab.Learn(&h, topology.PortRef{Switch: 1, Port: port}, now)
	}
	if c := claim(macOf(1), 1); len(c) != 1 || c[0].Kind != hosts.Added {
		t.Fatalf("the host itself: %+v", c)
	}
	for what, c := range map[string][]hosts.Change{"another host": claim(macOf(2), 2), "its own MAC address elsewhere": claim(macOf(1), 2)} {
		if len(c) != 1 || c[0].Kind != hosts.ClaimRefused {
			t.Errorf("%s: %+v", what, c)
		}
	}
	if h, ok := tab.ByIP(server); !ok || h.MAC != macOf(1) || h.At != home {
		t.Errorf("the address is at %+v", h)
	}
}
