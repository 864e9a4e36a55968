package forward

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

func ref(s, p int) topology.PortRef {
	return topology.PortRef{Switch: openflow.DatapathID(s), Port: uint32(p)}
}

func mac(n byte) openflow.MAC { return openflow.MAC{2, 0, 0, 0, 0, n} }

// net is a network for tests: cables, hosts and edge ports.
type net struct {
	links          []topology.Link
	hosts          map[openflow.MAC]topology.PortRef
	ips            map[netip.Addr]hosts.Neighbor
	edges, blocked map[openflow.DatapathID][]uint32
}

func (n *net) cable(a, b topology.PortRef) {
	n.links = append(n.links, topology.Link{From: a, To: b}, topology.Link{From: b, To: a})
}

func (n *net) cut(a topology.PortRef) {
	n.links = slices.DeleteFunc(n.links, func(l topology.Link) bool { return l.From == a || l.To == a })
}

func (n *net) view() *View {
	var ids []openflow.DatapathID
	for s := range n.edges {
		ids = append(ids, s)
	}
	return &View{Topology: topology.New(1, ids, n.links), Hosts: n, Edges: n}
}

func (n *net) Lookup(m openflow.MAC, _ uint16) (topology.PortRef, bool) {
	at, ok := n.hosts[m]
	return at, ok
}

func (n *net) Neighbor(a netip.Addr, _ uint16) (hosts.Neighbor, bool) {
	h, ok := n.ips[a]
	return h, ok
}

func (n *net) IsVirtual(m openflow.MAC) bool { return m == mac(100) }

func (n *net) IsEdge(r topology.PortRef) bool { return slices.Contains(n.edges[r.Switch], r.Port) }

func (n *net) BlockedPorts(s openflow.DatapathID) []uint32 { return n.blocked[s] }

func (n *net) EdgePorts(s openflow.DatapathID) []uint32 { return n.edges[s] }

// ring returns four switches with links by port 1 to the next and by port 2 to the previous one,
// and hosts 1 to 4 at port 9 of each.
func ring() *net {
	n := &net{hosts: map[openflow.MAC]topology.PortRef{}, ips: map[netip.Addr]hosts.Neighbor{}, edges: map[openflow.DatapathID][]uint32{}}
	for s := 1; s <= 4; s++ {
		n.cable(ref(s, 1), ref(s%4+1, 2))
		n.hosts[mac(byte(s))] = ref(s, 9)
		n.edges[openflow.DatapathID(s)] = []uint32{9}
	}
	return n
}

func unicast(from, to byte) *packet.Headers {
	h, err := packet.Parse(packet.AppendTCP(nil, packet.Frame{Dst: mac(to), Src: mac(from)}, packet.TCPSegment{
		Src: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, from}), 1), Dst: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, to}), 2),
	}))
	if err != nil {
		panic(err)
	}
	return &h
}

// route formats a flow's hops as "1:9>1 2:2>9".
func route(f *Flow) string {
	var s []string
	for _, h := range f.Path.Hops {
		s = append(s, strings.TrimLeft(h.Switch.String(), "0")+":"+openflow.PortName(h.In)+">"+openflow.PortName(h.Out))
	}
	return strings.Join(s, " ")
}

func TestKnownUnicast(t *testing.T) {
	n, table := ring(), NewTable()
	d := table.Decide(n.view(), ref(1, 9), unicast(1, 2))
	if d.Verb != Forward || !d.New || route(d.Flow) != "1:9>1 2:2>9" {
		t.Fatalf("%+v", d)
	}
	if d.Out.Switch != 1 || d.Out.InPort != 9 || !slices.Equal(d.Out.Actions, []openflow.Action{openflow.Output(1)}) {
		t.Errorf("packet goes %+v", d.Out)
	}
	if d := table.Decide(n.view(), ref(2, 2), unicast(1, 2)); d.New || d.Flow == nil || d.Out.Actions[0] != openflow.Output(9) {
		t.Errorf("the second switch is asked before its rule is there: %+v", d)
	}
}

func TestUnicastWithoutRules(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(*net) (topology.PortRef, *packet.Headers)
		verb Verb
		out  []openflow.Action
	}{
		{"unknown source", func(*net) (topology.PortRef, *packet.Headers) { return ref(1, 9), unicast(99, 2) }, Forward, []openflow.Action{openflow.Output(1)}},
		{"forged source", func(*net) (topology.PortRef, *packet.Headers) { return ref(1, 9), unicast(3, 2) }, Forward, []openflow.Action{openflow.Output(1)}},
		{"to the port it came from", func(n *net) (topology.PortRef, *packet.Headers) {
			n.hosts[mac(7)] = ref(1, 9)
			return ref(1, 9), unicast(1, 7)
		}, Drop, nil},
		{"no path", func(n *net) (topology.PortRef, *packet.Headers) {
			n.cut(ref(2, 1))
			n.cut(ref(2, 2))
			return ref(1, 9), unicast(1, 2)
		}, Drop, nil},
		{"unknown destination", func(*net) (topology.PortRef, *packet.Headers) { return ref(2, 9), unicast(2, 99) }, Flood, []openflow.Action{openflow.Output(1), openflow.Output(2)}},
		{"virtual address", func(*net) (topology.PortRef, *packet.Headers) { return ref(1, 9), unicast(1, 100) }, Drop, nil},
		{"unknown destination off the tree", func(*net) (topology.PortRef, *packet.Headers) { return ref(4, 1), unicast(2, 99) }, Flood, nil},
		{"group of bridges", func(*net) (topology.PortRef, *packet.Headers) {
			h := unicast(1, 2)
			h.EthDst = openflow.MAC{1, 0x80, 0xc2, 0, 0, 0}
			return ref(1, 9), h
		}, Drop, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, table := ring(), NewTable()
			at, h := tt.make(n)
			if tt.out == nil && tt.verb == Flood { // the port of the ring that is not on the tree varies
				v := n.view()
				for _, l := range v.Topology.Links {
					if !v.Topology.OnTree(l.From) {
						at = l.From
					}
				}
				tt.verb = Drop
			}
			d := table.Decide(n.view(), at, h)
			if d.Verb != tt.verb || d.Flow != nil || table.Len() != 0 || !slices.Equal(d.Out.Actions, tt.out) {
				t.Errorf("%v (%s) %v, want %v %v", d.Verb, d.Why, d.Out.Actions, tt.verb, tt.out)
			}
		})
	}
}

func TestRepair(t *testing.T) {
	n, table := ring(), NewTable()
	for _, pair := range [][2]byte{{1, 2}, {2, 1}, {3, 4}} {
		table.Decide(n.view(), n.hosts[mac(pair[0])], unicast(pair[0], pair[1]))
	}
	expect := func(name string, want ...string) {
		t.Helper()
		replaced, gone := table.Repair(n.view())
		var got []string
		for _, f := range replaced {
			got = append(got, route(f))
		}
		for _, k := range gone {
			got = append(got, "gone "+k.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	expect("nothing happened")
	n.cut(ref(1, 1))
	expect("link 1-2 dies", "1:9>2 4:1>2 3:1>2 2:1>9", "2:9>1 3:2>1 4:2>1 1:2>9")
	n.cable(ref(1, 1), ref(2, 2))
	expect("it comes back: nobody moves without need")
	n.hosts[mac(2)] = ref(3, 9)
	expect("host 2 moves to switch 3", "1:9>1 2:2>1 3:2>9", "3:9>2 2:1>2 1:1>9")
	delete(n.hosts, mac(2))
	expect("host 2 ages out behind a live port")
	n.edges[3] = nil
	expect("its port goes down", "gone "+Key{Src: mac(1), Dst: mac(2)}.String(), "gone "+Key{Src: mac(2), Dst: mac(1)}.String())
	delete(n.edges, 4)
	delete(n.hosts, mac(4))
	expect("switch 4 dies", "gone "+Key{Src: mac(3), Dst: mac(4)}.String())
	if table.Len() != 0 {
		t.Errorf("%d flows left", table.Len())
	}
}

// slowHosts is a host table whose lookups block until they are released.
type slowHosts struct {
	*net
	asked   chan struct{} // receives a value for each lookup
	resumed chan struct{}
}

func (s slowHosts) Lookup(m openflow.MAC, vlan uint16) (topology.PortRef, bool) {
	s.asked <- struct{}{}
	<-s.resumed
	return s.net.Lookup(m, vlan)
}

// TestRepairHoldsUpNobody checks that Decide is not delayed while flows are repaired, and that
// Repair leaves alone flows which change in between.
func TestRepairHoldsUpNobody(t *testing.T) {
	n, table := ring(), NewTable()
	table.Decide(n.view(), n.hosts[mac(1)], unicast(1, 2))
	delete(n.hosts, mac(2))
	n.edges[2] = nil
	slow := slowHosts{n, make(chan struct{}, 8), make(chan struct{})}
	v := n.view()
	v.Hosts = slow
	repaired := make(chan []Key)
	go func() {
		_, gone := table.Repair(v)
		repaired <- gone
	}()
	<-slow.asked
	decided := make(chan Decision)
	go func() {
		d := table.Decide(n.view(), n.hosts[mac(3)], unicast(3, 4))
		table.Delete(Key{Src: mac(1), Dst: mac(2)})
		decided <- d
	}()
	select {
	case d := <-decided:
		if !d.New {
			t.Errorf("the flow of another pair is not new: %+v", d)
		}
	case <-time.After(30 * time.Second):
		t.Error("a decision waits for the repair")
		close(slow.resumed)
		<-decided
		<-repaired
		return
	}
	close(slow.resumed)
	if gone := <-repaired; len(gone) > 0 || table.Len() != 1 {
		t.Errorf("%v are gone and %d flows left, want none and 1", gone, table.Len())
	}
}

func TestAnswers(t *testing.T) {
	ip4, ip6 := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")
	any4, any6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	me4, me6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	arp := func(sender, target netip.Addr) []byte { return packet.AppendARPRequest(nil, mac(1), sender, target, 0) }
	nd := func(sender, target netip.Addr) []byte {
		return packet.AppendNeighborSolicitation(nil, mac(1), sender, target, 0)
	}
	for _, tt := range []struct {
		name   string
		frame  []byte
		router hosts.RouterState
		at     topology.PortRef
		verb   Verb
		flags  uint8
		silent time.Duration
	}{
		{"ARP", arp(me4, ip4), hosts.RouterUnknown, ref(2, 9), Answer, 0, 0},
		{"ARP for an unknown address", arp(me4, netip.MustParseAddr("10.0.0.77")), 0, ref(2, 9), Flood, 0, 0},
		{"ARP for a host long silent", arp(me4, ip4), 0, ref(2, 9), Flood, 0, AnswerAge + time.Second},
		{"ARP probe", arp(any4, ip4), 0, ref(2, 9), Flood, 0, 0},
		{"ARP announcement", arp(ip4, ip4), 0, ref(2, 9), Flood, 0, 0},
		{"the target hears it itself", arp(me4, ip4), 0, ref(1, 9), Flood, 0, 0},
		{"solicitation for a host", nd(me6, ip6), hosts.NotRouter, ref(2, 9), Answer, packet.NDSolicited | packet.NDOverride, 0},
		{"solicitation for a router", nd(me6, ip6), hosts.IsRouter, ref(2, 9), Answer, packet.NDSolicited | packet.NDOverride | packet.NDRouter, 0},
		{"solicitation for one that may be a router", nd(me6, ip6), hosts.RouterUnknown, ref(2, 9), Flood, 0, 0},
		{"duplicate address detection", nd(any6, ip6), hosts.NotRouter, ref(2, 9), Flood, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := ring()
			n.ips[ip4] = hosts.Neighbor{MAC: mac(2), At: tt.at, Seen: time.Now().Add(-tt.silent)}
			n.ips[ip6] = hosts.Neighbor{MAC: mac(2), At: tt.at, Router: tt.router, Seen: time.Now()}
			h, err := packet.Parse(tt.frame)
			if err != nil {
				t.Fatal(err)
			}
			d := NewTable().Decide(n.view(), ref(1, 9), &h)
			if d.Verb != tt.verb {
				t.Fatalf("%v (%s), want %v", d.Verb, d.Why, tt.verb)
			}
			if d.Verb != Answer {
				return
			}
			r, err := packet.Parse(d.Out.Data)
			if err != nil || r.EthDst != mac(1) || r.EthSrc != mac(2) || d.Out.Switch != 1 || d.Out.Actions[0] != openflow.Output(9) {
				t.Fatalf("answer %+v, %v, to %+v", r, err, d.Out)
			}
			if h.Has(packet.ARP) && (r.ARPOp != packet.ARPReply || r.Src != ip4 || r.Dst != me4 || r.ARPSHA != mac(2) || r.ARPTHA != mac(1)) {
				t.Errorf("ARP answer %+v", r)
			}
			if h.Has(packet.ND) && (r.NDTarget != ip6 || r.NDLink != mac(2) || r.NDFlags != tt.flags || r.Dst != me6 || r.TTL != 255) {
				t.Errorf("ND answer %+v", r)
			}
		})
	}
}

func BenchmarkDecideKnownFlow(b *testing.B) {
	n, table := ring(), NewTable()
	v, h := n.view(), unicast(1, 3)
	table.Decide(v, ref(1, 9), h)
	b.ReportAllocs()
	for b.Loop() {
		table.Decide(v, ref(1, 9), h)
	}
}

func BenchmarkDecideNewFlow(b *testing.B) {
	n, table := ring(), NewTable()
	v, h := n.view(), unicast(1, 3)
	b.ReportAllocs()
	for b.Loop() {
		d := table.Decide(v, ref(1, 9), h)
		table.Delete(d.Flow.Key)
	}
}

// BenchmarkDecideNewFlowOnOneSwitch decides about two hosts on one switch, as a load generator
// of packet-ins does.
func BenchmarkDecideNewFlowOnOneSwitch(b *testing.B) {
	n, table := ring(), NewTable()
	n.hosts[mac(77)] = ref(1, 8)
	v, h := n.view(), unicast(1, 77)
	b.ReportAllocs()
	for b.Loop() {
		d := table.Decide(v, ref(1, 9), h)
		table.Delete(d.Flow.Key)
	}
}
