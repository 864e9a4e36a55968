package hosts

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

var (
	t0    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	portA = topology.PortRef{Switch: 1, Port: 1}
	portB = topology.PortRef{Switch: 2, Port: 1}
	inner = topology.PortRef{Switch: 1, Port: 9}
)

func isEdge(r topology.PortRef) bool { return r != inner }

func mac(n byte) openflow.MAC { return openflow.MAC{2, 0, 0, 0, 0, n} }

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

// parse parses a frame.
func parse(t testing.TB, frame []byte) *packet.Headers {
	t.Helper()
	h, err := packet.Parse(frame)
	if err != nil {
		t.Fatal(err)
	}
	return &h
}

func arp(t testing.TB, n byte, addr string, vlan uint16) *packet.Headers {
	return parse(t, packet.AppendARPRequest(nil, mac(n), ip(addr), ip("10.0.0.254"), vlan))
}

func tcp(t testing.TB, n byte, from, to string) *packet.Headers {
	return parse(t, packet.AppendTCP(nil, packet.Frame{Dst: mac(200), Src: mac(n)}, packet.TCPSegment{
		Src: netip.AddrPortFrom(ip(from), 1000), Dst: netip.AddrPortFrom(ip(to), 80), Flags: packet.SYN,
	}))
}

func advertisement(t testing.TB, n byte, target string, flags uint8) *packet.Headers {
	return parse(t, packet.AppendNeighborAdvertisement(nil, packet.Frame{Dst: mac(200), Src: mac(n)},
		packet.Advertisement{Target: ip(target), MAC: mac(n), To: ip("fe80::200"), Flags: flags}))
}

// summary formats changes for test tables.
func summary(cs []Change) string {
	s := ""
	for _, c := range cs {
		kinds := map[Kind]string{Added: "added", Moved: "moved", Removed: "removed", Changed: "changed"}
		s += fmt.Sprintf("%s %d %v at %v; ", kinds[c.Kind], c.Host.MAC[5], c.Host.IPs, c.Host.At)
	}
	return s
}

func TestLearn(t *testing.T) {
	at := func(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }
	table := New(Options{Edge: isEdge, Subnets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}})
	spoofed := arp(t, 5, "10.0.0.66", 0)
	spoofed.ARPSHA = mac(6)
	routed := advertisement(t, 5, "fd00::66", 0)
	routed.TTL = 254
	a, b := "0000000000000001/1", "0000000000000002/1"
	for i, step := range []struct {
		name string
		h    *packet.Headers
		at   topology.PortRef
		want string
	}{
		{"inner ports teach nothing", arp(t, 1, "10.0.0.1", 0), inner, ""},
		{"ARP", arp(t, 1, "10.0.0.1", 0), portA, "added 1 [10.0.0.1] at " + a + "; "},
		{"the same again", arp(t, 1, "10.0.0.1", 0), portA, ""},
		{"at an inner port it does not move", arp(t, 1, "10.0.0.1", 0), inner, ""},
		{"second address", arp(t, 1, "10.0.0.2", 0), portA, "changed 1 [10.0.0.1 10.0.0.2] at " + a + "; "},
		{"an ARP probe claims nothing", arp(t, 1, "0.0.0.0", 0), portA, ""},
		{"move", arp(t, 1, "10.0.0.1", 0), portB, "moved 1 [10.0.0.1 10.0.0.2] at " + b + "; "},
		{"another VLAN is another host", arp(t, 1, "10.0.0.1", 7), portA, "added 1 [10.0.0.1] at " + a + "; "},
		{
			"an address changes hands", arp(t, 2, "10.0.0.2", 0), portA,
			"added 2 [10.0.0.2] at " + a + "; changed 1 [10.0.0.1] at " + b + "; ",
		},
		{"sender address of another", spoofed, portA, "added 5 [] at " + a + "; "},
		{"ND through a router", routed, portA, ""},
		{"advertisement", advertisement(t, 5, "fd00::5", 0), portA, "changed 5 [fd00::5] at " + a + "; "},
		{"source beyond a router", tcp(t, 5, "192.0.2.1", "10.0.0.1"), portA, ""},
		{"link-local source", tcp(t, 5, "fe80::5", "fe80::6"), portA, "changed 5 [fd00::5 fe80::5] at " + a + "; "},
		{"source in a named subnet", tcp(t, 5, "10.0.0.5", "10.0.0.1"), portA, "changed 5 [fd00::5 fe80::5 10.0.0.5] at " + a + "; "},
		{"it takes nothing from others", tcp(t, 5, "10.0.0.1", "10.0.0.2"), portA, ""},
	} {
		if got := summary(table.Learn(step.h, step.at, at(i))); got != step.want {
			t.Errorf("%s:\ngot  %q\nwant %q", step.name, got, step.want)
		}
	}
	if h, ok := table.ByIP(ip("10.0.0.1")); !ok || h.MAC != mac(1) {
		t.Errorf("10.0.0.1 belongs to %v, %v", h, ok)
	}
	if len(table.All()) != 4 || table.Len() != 4 {
		t.Errorf("%d hosts, want 4: %v", table.Len(), table.All())
	}
}

func TestGroupAddressesAreNoHosts(t *testing.T) {
	table := New(Options{Edge: isEdge})
	h := arp(t, 1, "10.0.0.1", 0)
	for _, m := range []openflow.MAC{{}, {1, 0, 0, 0, 0, 1}, openflow.Broadcast} {
		h.EthSrc, h.ARPSHA = m, m
		if c := table.Learn(h, portA, t0); c != nil {
			t.Errorf("%v was learned: %v", m, c)
		}
	}
}

func TestIgnoreVLAN(t *testing.T) {
	table := New(Options{Edge: isEdge, IgnoreVLAN: true})
	table.Learn(arp(t, 1, "10.0.0.1", 5), portA, t0)
	if c := table.Learn(arp(t, 1, "10.0.0.1", 6), portA, t0); c != nil {
		t.Errorf("another VLAN changed something: %v", c)
	}
	if at, ok := table.Lookup(mac(1), 9); !ok || at != portA {
		t.Errorf("not found in another VLAN")
	}
	if _, ok := table.Neighbor(ip("10.0.0.1"), 9); !ok {
		t.Errorf("address not found in another VLAN")
	}
}

func TestLateFramesDoNotMoveBack(t *testing.T) {
	table := New(Options{Edge: isEdge})
	h := arp(t, 1, "10.0.0.1", 0)
	table.Learn(h, portA, t0)
	if c := table.Learn(h, portB, t0.Add(time.Millisecond)); len(c) != 1 || c[0].Kind != Moved || c[0].From != portA {
		t.Fatalf("a first move is not held: %v", c)
	}
	if c := table.Learn(h, portA, t0.Add(2*time.Millisecond)); c != nil {
		t.Errorf("a late frame moved the host back: %v", c)
	}
	if c := table.Learn(h, portA, t0.Add(time.Second)); len(c) != 1 || c[0].Kind != Moved {
		t.Errorf("it cannot move later: %v", c)
	}
}

func TestBounds(t *testing.T) {
	table := New(Options{Edge: isEdge, MaxHosts: 5, MaxPerPort: 3, MaxIPs: 2})
	for n := range byte(10) {
		table.Learn(arp(t, n+1, fmt.Sprintf("10.0.0.%d", n+1), 0), portA, t0)
	}
	if table.Len() != 3 || table.Refused()[Full] != 0 {
		t.Errorf("one port: %d hosts, %d refused; want the latest 3, for which others give way", table.Len(), table.Refused())
	}
	for n := range byte(10) {
		table.Learn(arp(t, n+100, fmt.Sprintf("10.0.1.%d", n+1), 0), portB, t0)
	}
	if table.Len() != 5 {
		t.Errorf("%d hosts, want 5", table.Len())
	}
	for n := range 4 {
		table.Learn(arp(t, 10, fmt.Sprintf("10.0.9.%d", n), 0), portA, t0)
	}
	h, _ := table.ByMAC(mac(10), 0)
	if want := []netip.Addr{ip("10.0.9.2"), ip("10.0.9.3")}; !slices.Equal(h.IPs, want) {
		t.Errorf("addresses %v, want the newest, %v", h.IPs, want)
	}
	if _, ok := table.ByIP(ip("10.0.9.0")); ok {
		t.Error("a dropped address is still found")
	}
}

func TestRouters(t *testing.T) {
	table := New(Options{Edge: isEdge})
	state := func() RouterState {
		n, ok := table.Neighbor(ip("fd00::1"), 0)
		if !ok {
			t.Fatal("not found")
		}
		return n.Router
	}
	table.Learn(parse(t, packet.AppendNeighborSolicitation(nil, mac(1), ip("fd00::1"), ip("fd00::2"), 0)), portA, t0)
	if state() != RouterUnknown {
		t.Errorf("a solicitation says nothing about routers, got %d", state())
	}
	table.Learn(advertisement(t, 1, "fd00::1", packet.NDRouter), portA, t0)
	if state() != IsRouter {
		t.Errorf("got %d, want a router", state())
	}
	table.Learn(advertisement(t, 1, "fd00::1", 0), portA, t0)
	if state() != NotRouter {
		t.Errorf("got %d, want no router", state())
	}
}

func TestRemoval(t *testing.T) {
	table := New(Options{Edge: isEdge, Age: time.Minute})
	table.Learn(arp(t, 1, "10.0.0.1", 0), portA, t0)
	table.Learn(arp(t, 2, "10.0.0.2", 0), portB, t0)
	table.Learn(arp(t, 3, "10.0.0.3", 0), portA, t0)
	table.Learn(arp(t, 3, "10.0.0.3", 0), portA, t0.Add(50*time.Second))
	a, b := "0000000000000001/1", "0000000000000002/1"
	if got, want := summary(table.Expire(t0.Add(70*time.Second))), "removed 1 [10.0.0.1] at "+a+"; removed 2 [10.0.0.2] at "+b+"; "; got != want {
		t.Errorf("expired %q, want %q", got, want)
	}
	if got, want := summary(table.RemovePort(portA)), "removed 3 [10.0.0.3] at "+a+"; "; got != want {
		t.Errorf("port down: %q, want %q", got, want)
	}
	table.Learn(arp(t, 2, "10.0.0.2", 0), portB, t0)
	if got, want := summary(table.RemoveSwitch(2)), "removed 2 [10.0.0.2] at "+b+"; "; got != want {
		t.Errorf("switch down: %q, want %q", got, want)
	}
	if _, ok := table.ByIP(ip("10.0.0.2")); ok || table.Len() != 0 {
		t.Error("something is left")
	}
}

// TestIndexesAgree drives the table at random and checks that exactly one host in each VLAN
// holds an address, and that this host lists it.
func TestIndexesAgree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table := New(Options{Edge: isEdge, MaxHosts: 6, MaxPerPort: 4, MaxIPs: 2, MoveHold: time.Nanosecond})
		now := t0
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now = now.Add(time.Second)
			at := rapid.SampledFrom([]topology.PortRef{portA, portB, inner, {Switch: 2, Port: 2}}).Draw(rt, "at")
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				table.RemovePort(at)
			case 1:
				table.RemoveSwitch(at.Switch)
			default:
				n := rapid.ByteRange(1, 5).Draw(rt, "host")
				addr := fmt.Sprintf("10.0.0.%d", rapid.IntRange(1, 5).Draw(rt, "ip"))
				table.Learn(arp(t, n, addr, uint16(rapid.IntRange(0, 1).Draw(rt, "vlan"))), at, now)
			}
			check(rt, table)
		}
	})
}

func check(t *rapid.T, table *Table) {
	perPort := map[topology.PortRef]int{}
	held := 0
	for _, h := range table.All() {
		perPort[h.At]++
		if !isEdge(h.At) || perPort[h.At] > 4 || len(h.IPs) > 2 {
			t.Fatalf("bounds broken by %v", h)
		}
		if at, ok := table.Lookup(h.MAC, h.VLAN); !ok || at != h.At {
			t.Fatalf("%v is found at %v, %v", h, at, ok)
		}
		for _, a := range h.IPs {
			held++
			if n, ok := table.Neighbor(a, h.VLAN); !ok || n.MAC != h.MAC || n.At != h.At {
				t.Fatalf("%v of %v is held by %v", a, h, n)
			}
		}
	}
	indexed := 0
	for _, es := range table.ips.hosts {
		indexed += len(es)
	}
	if indexed != held || table.Len() > 6 {
		t.Fatalf("%d addresses indexed, hosts hold %d; %d hosts", indexed, held, table.Len())
	}
}

func TestConcurrentUse(t *testing.T) {
	table := New(Options{Edge: isEdge, MoveHold: time.Nanosecond})
	ports := []topology.PortRef{portA, portB}
	var frames [4]*packet.Headers
	for n := range frames {
		frames[n] = arp(t, byte(n%2)+1, fmt.Sprintf("10.0.0.%d", n), 0)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				table.Learn(frames[(g+i)%4], ports[i%2], t0.Add(time.Duration(i)*time.Second))
				table.ByIP(ip("10.0.0.1"))
				table.Lookup(mac(1), 0)
				if i%100 == 99 {
					table.RemovePort(ports[g%2])
				}
			}
		})
	}
	wg.Wait()
	if table.Len() > 2 {
		t.Errorf("%d hosts from two addresses", table.Len())
	}
}

func TestKnownHostDoesNotAllocate(t *testing.T) {
	table := New(Options{Edge: isEdge})
	h := arp(t, 1, "10.0.0.1", 0)
	table.Learn(h, portA, t0)
	if n := testing.AllocsPerRun(100, func() {
		table.Learn(h, portA, t0)
		table.Lookup(mac(1), 0)
		table.Neighbor(ip("10.0.0.1"), 0)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func full(b *testing.B) (*Table, []*packet.Headers) {
	table := New(Options{Edge: isEdge, MaxPerPort: DefaultMaxHosts})
	hs := make([]*packet.Headers, 10000)
	for i := range hs {
		h := tcp(b, 1, "10.0.0.1", "10.0.0.2")
		h.EthSrc = openflow.MAC{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)}
		table.Learn(h, portA, t0)
		hs[i] = h
	}
	b.ReportAllocs()
	b.ResetTimer()
	return table, hs
}

func BenchmarkLookupOf10000(b *testing.B) {
	table, hs := full(b)
	for i := 0; b.Loop(); i++ {
		table.Lookup(hs[i%len(hs)].EthSrc, 0)
	}
}

func BenchmarkLearnKnownOf10000(b *testing.B) {
	table, hs := full(b)
	for i := 0; b.Loop(); i++ {
		table.Learn(hs[i%len(hs)], portA, t0)
	}
}

func BenchmarkLookupParallel(b *testing.B) {
	table, hs := full(b)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			table.Lookup(hs[i%len(hs)].EthSrc, 0)
		}
	})
}
