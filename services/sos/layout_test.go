package sos

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// These are the addresses of the published figure: client A and its agent X at switch 1, server B
// and its agent Y at switch 2.
var (
	hostA  = netip.MustParseAddrPort("10.0.0.1:40001")
	hostB  = netip.MustParseAddrPort("10.0.0.2:80")
	agentX = netip.MustParseAddrPort("10.0.0.11:5001")
	agentY = netip.MustParseAddrPort("10.0.0.12:6001")
	macA   = openflow.MAC{2, 0, 0, 0, 0, 1}
	macB   = openflow.MAC{2, 0, 0, 0, 0, 2}
	macX   = openflow.MAC{2, 0, 0, 0, 0, 11}
	macY   = openflow.MAC{2, 0, 0, 0, 0, 12}
)

const (
	portA, portX, wan = 1, 2, 3 // ports of switch 1
	portB, portY      = 1, 2    // ports of switch 2
)

func everything(openflow.DatapathID, openflow.Field) bool { return true }

func hop(dpid openflow.DatapathID, in, out uint32) network.Hop {
	return network.Hop{Switch: dpid, In: in, Out: out}
}

// figure returns the layout of the published figure 5.2.3.
func figure() Layout {
	return Layout{
		Client: hostA, Server: hostB,
		ClientSide: Side{
			EndMAC: macA, FarMAC: macB, Agent: agentX.Addr(), AgentPort: agentX.Port(), AgentMAC: macX,
			OnLink: true, Path: []network.Hop{hop(1, portA, portX)},
		},
		ServerSide: Side{
			EndMAC: macB, FarMAC: macA, Agent: agentY.Addr(), AgentPort: agentY.Port(), AgentMAC: macY,
			OnLink: true, Path: []network.Hop{hop(2, portB, portY)},
		},
	}
}

// connection returns a match of the packets from one socket to another that enter by a port.
func connection(in uint32, from, to netip.AddrPort, more ...openflow.OXM) openflow.Match {
	return openflow.MustMatch(append([]openflow.OXM{
		openflow.InPort(in), openflow.EthType(etherType(from.Addr())), openflow.IPProto(6),
		openflow.IPSrc(from.Addr()), openflow.IPDst(to.Addr()),
		openflow.TCPSrc(from.Port()), openflow.TCPDst(to.Port()),
	}, more...)...)
}

func set(o openflow.OXM) openflow.Action { return openflow.SetField(o) }

func rewriting(dpid openflow.DatapathID, m openflow.Match, actions ...openflow.Action) network.Rule {
	return network.Rule{Switch: dpid, Stage: network.StageRewrite, Match: m, Actions: actions}
}

func sameRules(t *testing.T, name string, got, want []network.Rule) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d rules, want %d", name, len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		g, w := got[i], want[i]
		if g.Switch != w.Switch || g.Stage != w.Stage || g.Match != w.Match || !slices.Equal(g.Actions, w.Actions) {
			t.Errorf("%s, rule %d:\n got %v %v %v %v\nwant %v %v %v %v", name, i,
				g.Switch, g.Stage, g.Match, g.Actions, w.Switch, w.Stage, w.Match, w.Actions)
		}
	}
}

// bothSides returns all rules of a layout.
func bothSides(t *testing.T, l Layout, can Capable) (client, server []network.Rule) {
	t.Helper()
	client, err := l.ClientRules(can)
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.ServerRules(can)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkDisjoint(append(slices.Clone(client), server...)); err != nil {
		t.Fatal(err)
	}
	return client, server
}

// TestPublishedTable compares the rules with table 5.2.1. The matches are narrowed to the whole
// connection.
func TestPublishedTable(t *testing.T) {
	client, server := bothSides(t, figure(), everything)
	sameRules(t, "client", client, []network.Rule{
		rewriting(1, connection(portX, agentX, hostA),
			set(openflow.EthSrc(macB)), set(openflow.IPSrc(hostB.Addr())), set(openflow.TCPSrc(80)), openflow.Output(portA)),
		rewriting(1, connection(portA, hostA, hostB),
			set(openflow.EthDst(macX)), set(openflow.IPDst(agentX.Addr())), set(openflow.TCPDst(5001)), openflow.Output(portX)),
	})
	sameRules(t, "server", server, []network.Rule{
		rewriting(2, connection(portY, agentY, hostB),
			set(openflow.EthSrc(macA)), set(openflow.IPSrc(hostA.Addr())), set(openflow.TCPSrc(40001)), openflow.Output(portB)),
		rewriting(2, connection(portB, hostB, hostA),
			set(openflow.EthDst(macY)), set(openflow.IPDst(agentY.Addr())), set(openflow.TCPDst(6001)), openflow.Output(portY)),
	})
}

// TestFirstPackets checks that first packets are left to the controller if the interception switch
// can distinguish them from others, and are forwarded like the others if not.
func TestFirstPackets(t *testing.T) {
	l := figure()
	if opening, err := l.Opening(everything, network.PortRef{}); err != nil || !slices.Equal(opening, []openflow.Action{openflow.Output(openflow.PortTable)}) {
		t.Errorf("by a switch that cannot tell them from others: %v, %v", opening, err)
	}
	plain, server := bothSides(t, l, everything)
	l.ClientSide.PuntsSYN = true
	client, same := bothSides(t, l, everything)
	sameRules(t, "server", same, server)
	sameRules(t, "client", client, []network.Rule{
		plain[0],
		rewriting(1, connection(portA, hostA, hostB, openflow.TCPFlags(0, tcpSYN)), plain[1].Actions...),
	})
	if opening, err := l.Opening(everything, network.PortRef{}); err != nil || !slices.Equal(opening, plain[1].Actions) {
		t.Errorf("first packets go by %v, %v", opening, err)
	}
}

// limited returns capabilities by which the named switches rewrite MAC addresses only.
func limited(names ...openflow.DatapathID) Capable {
	return func(d openflow.DatapathID, f openflow.Field) bool {
		return !slices.Contains(names, d) || f == openflow.FieldEthDst || f == openflow.FieldEthSrc
	}
}

// TestWhiteBoxTable compares the rules with tables 5.2.2 and 5.2.3: hardware switches 1 and 2
// rewrite MAC addresses, and software switches 11 and 12 on the agents' machines the rest.
func TestWhiteBoxTable(t *testing.T) {
	l := figure()
	l.ClientSide.Path = []network.Hop{hop(1, portA, portX), hop(11, 1, 2)}
	l.ServerSide.Path = []network.Hop{hop(2, portB, portY), hop(12, 1, 2)}
	client, server := bothSides(t, l, limited(1, 2))
	sameRules(t, "client", client, []network.Rule{
		// 2.2, 2.1
		rewriting(1, connection(portX, hostB, hostA), set(openflow.EthSrc(macB)), openflow.Output(portA)),
		rewriting(11, connection(2, agentX, hostA), set(openflow.IPSrc(hostB.Addr())), set(openflow.TCPSrc(80)), openflow.Output(1)),
		// 1.2, 1.1
		rewriting(11, connection(1, hostA, hostB), set(openflow.IPDst(agentX.Addr())), set(openflow.TCPDst(5001)), openflow.Output(2)),
		rewriting(1, connection(portA, hostA, hostB), set(openflow.EthDst(macX)), openflow.Output(portX)),
	})
	sameRules(t, "server", server, []network.Rule{
		// 7.2, 7.1
		rewriting(2, connection(portY, hostA, hostB), set(openflow.EthSrc(macA)), openflow.Output(portB)),
		rewriting(12, connection(2, agentY, hostB), set(openflow.IPSrc(hostA.Addr())), set(openflow.TCPSrc(40001)), openflow.Output(1)),
		// 8.2, 8.1
		rewriting(12, connection(1, hostB, hostA), set(openflow.IPDst(agentY.Addr())), set(openflow.TCPDst(6001)), openflow.Output(2)),
		rewriting(2, connection(portB, hostB, hostA), set(openflow.EthDst(macY)), openflow.Output(portY)),
	})
}

func TestLimitedSwitchesOnlyFailsOpen(t *testing.T) {
	if _, err := figure().ClientRules(limited(1)); err == nil {
		t.Error("rules for switches that cannot rewrite addresses")
	}
}

func TestRoutedEndsGetDestinationRewritten(t *testing.T) {
	l := figure()
	router := openflow.MAC{2, 0, 0, 0, 0, 0xfe}
	l.ClientSide.OnLink, l.ClientSide.EndMAC = false, router
	client, _ := bothSides(t, l, everything)
	sameRules(t, "client", client[:1], []network.Rule{
		rewriting(1, connection(portX, agentX, hostA), set(openflow.EthSrc(macB)), set(openflow.EthDst(router)),
			set(openflow.IPSrc(hostB.Addr())), set(openflow.TCPSrc(80)), openflow.Output(portA)),
	})
}

func TestVLANs(t *testing.T) {
	cases := []struct {
		name             string
		end, agent       uint16
		toEnd, toAgent   []openflow.Action
		fromEnd, fromAgt []openflow.OXM
	}{
		{
			"end tagged", 10, 0,
			[]openflow.Action{openflow.PushVLAN(0x8100), set(openflow.VLANVID(10))},
			[]openflow.Action{openflow.PopVLAN()},
			[]openflow.OXM{openflow.VLANVID(10)},
			nil,
		},
		{
			"agent tagged", 0, 20,
			[]openflow.Action{openflow.PopVLAN()},
			[]openflow.Action{openflow.PushVLAN(0x8100), set(openflow.VLANVID(20))},
			nil,
			[]openflow.OXM{openflow.VLANVID(20)},
		},
		{
			"both tagged", 10, 20,
			[]openflow.Action{set(openflow.VLANVID(10))},
			[]openflow.Action{set(openflow.VLANVID(20))},
			[]openflow.OXM{openflow.VLANVID(10)},
			[]openflow.OXM{openflow.VLANVID(20)},
		},
	}
	for _, c := range cases {
		l := figure()
		l.ClientSide.EndVLAN, l.ClientSide.AgentVLAN = c.end, c.agent
		client, _ := bothSides(t, l, everything)
		sameRules(t, c.name, client, []network.Rule{
			rewriting(1, connection(portX, agentX, hostA, c.fromAgt...), append(c.toEnd,
				set(openflow.EthSrc(macB)), set(openflow.IPSrc(hostB.Addr())), set(openflow.TCPSrc(80)), openflow.Output(portA))...),
			rewriting(1, connection(portA, hostA, hostB, c.fromEnd...), append(c.toAgent,
				set(openflow.EthDst(macX)), set(openflow.IPDst(agentX.Addr())), set(openflow.TCPDst(5001)), openflow.Output(portX))...),
		})
	}
}

func TestIPv6(t *testing.T) {
	l := figure()
	l.Client, l.Server = netip.MustParseAddrPort("[2001:db8::1]:40001"), netip.MustParseAddrPort("[2001:db8::2]:80")
	x, y := netip.MustParseAddr("2001:db8::11"), netip.MustParseAddr("2001:db8::12")
	l.ClientSide.Agent, l.ServerSide.Agent = x, y
	client, _ := bothSides(t, l, everything)
	sameRules(t, "client", client, []network.Rule{
		rewriting(1, connection(portX, netip.AddrPortFrom(x, 5001), l.Client),
			set(openflow.EthSrc(macB)), set(openflow.IPSrc(l.Server.Addr())), set(openflow.TCPSrc(80)), openflow.Output(portA)),
		rewriting(1, connection(portA, l.Client, l.Server),
			set(openflow.EthDst(macX)), set(openflow.IPDst(x)), set(openflow.TCPDst(5001)), openflow.Output(portX)),
	})
	l.ClientSide.Agent = agentX.Addr()
	if _, err := l.ClientRules(everything); err == nil {
		t.Error("an IPv4 agent was accepted for an IPv6 connection")
	}
}

func TestAgentBehindTheSamePort(t *testing.T) {
	l := figure()
	l.ClientSide.Path = []network.Hop{hop(1, portA, portA)}
	client, _ := bothSides(t, l, everything)
	for _, r := range client {
		if last := r.Actions[len(r.Actions)-1]; last != openflow.Output(openflow.PortInPort) {
			t.Errorf("leaves by %v, want in_port", last)
		}
	}
}

// walk sends a packet along the rules of a path and returns what arrives.
func walk(t *rapid.T, rules []network.Rule, path []network.Hop, h header) header {
	for _, hp := range path {
		m, err := h.match(openflow.InPort(hp.In))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(rules, func(r network.Rule) bool { return r.Switch == hp.Switch && r.Match == m })
		if i < 0 {
			t.Fatalf("switch %v has no rule for %v", hp.Switch, m)
		}
		for _, a := range rules[i].Actions {
			h = apply(h, a)
		}
		if out := rules[i].Actions[len(rules[i].Actions)-1]; out != openflow.Output(hp.Output()) {
			t.Fatalf("switch %v: leaves by %v, want %d", hp.Switch, out, hp.Out)
		}
	}
	return h
}

func apply(h header, a openflow.Action) header {
	switch a.Type {
	case openflow.ActionPopVLAN:
		h.vlan = 0
	case openflow.ActionSetField:
		switch a.OXM.Field {
		case openflow.FieldVLANVID:
			h.vlan = uint16(a.OXM.Uint()) & 0xfff
		case openflow.FieldEthSrc:
			h.ethSrc = a.OXM.MAC()
		case openflow.FieldEthDst:
			h.ethDst = a.OXM.MAC()
		case openflow.FieldIPv4Src:
			h.src = netip.AddrPortFrom(a.OXM.Addr(), h.src.Port())
		case openflow.FieldIPv4Dst:
			h.dst = netip.AddrPortFrom(a.OXM.Addr(), h.dst.Port())
		case openflow.FieldTCPSrc:
			h.src = netip.AddrPortFrom(h.src.Addr(), uint16(a.OXM.Uint()))
		case openflow.FieldTCPDst:
			h.dst = netip.AddrPortFrom(h.dst.Addr(), uint16(a.OXM.Uint()))
		}
	}
	return h
}

// TestAnySplitIsTransparent draws paths and capabilities, and checks that the same packets arrive
// however the rewriting is divided.
func TestAnySplitIsTransparent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "switches")
		able := make([]uint8, n)
		var path []network.Hop
		for i := range n {
			able[i] = rapid.Uint8().Draw(t, "fields")
			path = append(path, hop(openflow.DatapathID(i), uint32(2*i+1), uint32(2*i+2)))
		}
		able[rapid.IntRange(0, n-1).Draw(t, "software switch")] = 0xff
		bit := map[openflow.Field]uint8{
			openflow.FieldVLANVID: 1, openflow.FieldEthSrc: 2, openflow.FieldEthDst: 4, openflow.FieldIPv4Src: 8,
			openflow.FieldIPv4Dst: 16, openflow.FieldTCPSrc: 32, openflow.FieldTCPDst: 64,
		}
		can := func(d openflow.DatapathID, f openflow.Field) bool { return able[d]&bit[f] != 0 }
		l := figure()
		s := &l.ClientSide
		s.Path = path
		s.EndVLAN = rapid.SampledFrom([]uint16{0, 10}).Draw(t, "end's VLAN")
		s.AgentVLAN = rapid.SampledFrom([]uint16{0, 10, 20}).Draw(t, "agent's VLAN")
		s.OnLink = rapid.Bool().Draw(t, "on link")
		rules, err := l.ClientRules(can)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkDisjoint(rules); err != nil {
			t.Fatal(err)
		}
		got := walk(t, rules, path, header{vlan: s.EndVLAN, ethSrc: macA, ethDst: macB, src: hostA, dst: hostB})
		if want := (header{vlan: s.AgentVLAN, ethSrc: macA, ethDst: macX, src: hostA, dst: agentX}); got != want {
			t.Errorf("the agent sees %v, want %v", got, want)
		}
		got = walk(t, rules, kit.Reversed(path), header{vlan: s.AgentVLAN, ethSrc: macX, ethDst: macA, src: agentX, dst: hostA})
		if want := (header{vlan: s.EndVLAN, ethSrc: macB, ethDst: macA, src: hostB, dst: hostA}); got != want {
			t.Errorf("the client sees %v, want %v", got, want)
		}
	})
}
