package sos

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

func TestSessionFromFirstPacketToEnd(t *testing.T) {
	b := newBench(t)
	b.net.events()
	verdict, held := b.syn(hostA)
	if got := b.fate(held); verdict != network.Stop || got != "released" {
		t.Fatalf("verdict %v, packet %s", verdict, got)
	}
	events := b.net.events()
	before := func(first, second string) {
		t.Helper()
		if i, j := slices.Index(events, first), slices.Index(events, second); i < 0 || j < 0 || i > j {
			t.Errorf("%q has to come before %q: %v", first, second, events)
		}
	}
	before("prepare client", "apply server")
	before("prepare server", "apply server")
	before("apply server", "commit server")
	before("apply pair", "commit server")
	before("commit server", "apply client")
	before("apply client", "release")

	id := b.x.only(t)
	asked := figure()
	asked.ClientSide.PuntsSYN = true
	client, server := bothSides(t, asked, everything)
	if !slices.Equal(held.actions, client[1].Actions) {
		t.Errorf("the first packet was sent on by %v, the others are by %v", held.actions, client[1].Actions)
	}
	rules := b.net.snapshot()
	sameRules(t, "client", rules["session/"+id.String()+"/client"], client)
	sameRules(t, "server", rules["session/"+id.String()+"/server"], server)
	pair, err := pairXY([]network.Hop{hop(1, portX, wan), hop(2, wan, portY)}).Rules(everything)
	if err != nil {
		t.Fatal(err)
	}
	sameRules(t, "pair", rules["pair/10.0.0.11/10.0.0.12"], pair)

	b.x.finish(id, agentapi.ReasonClosed)
	b.y.finish(id, agentapi.ReasonClosed)
	b.clean()
	past := b.past()
	if len(past) != 1 || past[0].How != "closed" || past[0].BytesDown != 1000 || past[0].ClientAgent != "x" ||
		past[0].Setup.Total == 0 || len(past[0].AgentPaths) != 1 {
		t.Errorf("history: %+v", past)
	}
}

func TestRetransmittedFirstPacketJoins(t *testing.T) {
	b := newBench(t)
	answer := make(chan error)
	b.y.commit = func() error { return <-answer }
	_, held := b.syn(hostA)
	for range 3 {
		if verdict, again := b.syn(hostA); verdict != network.Stop || again != nil {
			t.Errorf("verdict %v, held again %v", verdict, again != nil)
		}
	}
	close(answer)
	if got := b.fate(held); got != "released" {
		t.Errorf("the packet was %s", got)
	}
	if n := b.x.count(); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
}

// TestFailOpen makes each step of a set-up fail, and checks that the packet is forwarded and
// nothing is left behind.
func TestFailOpen(t *testing.T) {
	problem := func(c control.Code) error { return &control.Problem{Code: c, Title: string(c)} }
	refuses := func(c control.Code) func(agentapi.PrepareRequest) error {
		return func(agentapi.PrepareRequest) error { return problem(c) }
	}
	rules := func(kind string) func(*bench) {
		return func(b *bench) {
			b.net.mu.Lock()
			defer b.net.mu.Unlock()
			b.net.refuse = func(key string) error {
				if keyKind(key) == kind {
					return errors.New("table full")
				}
				return nil
			}
		}
	}
	cases := []struct {
		name string
		set  func(*bench)
		why  string
	}{
		{"client's agent full", func(b *bench) { b.x.prepare = refuses(control.CodeFull) }, "agents"},
		{"server's agent has no route", func(b *bench) { b.y.prepare = refuses(control.CodeNoRoute) }, "no-route"},
		{"client's agent answers nonsense", func(b *bench) { b.x.prepare = refuses("") }, "agents"},
		{"server refuses", func(b *bench) { b.y.commit = func() error { return problem(control.CodeRefused) } }, "refused"},
		{"server does not answer", func(b *bench) { b.y.commit = func() error { return problem(control.CodeTimeout) } }, "timeout"},
		{"client's agent fails to commit", func(b *bench) { b.x.commit = func() error { return problem(control.CodeNoPeer) } }, "no-peer"},
		{"server's agent dies while it prepares", func(b *bench) {
			b.y.prepare = func(agentapi.PrepareRequest) error { go b.y.kill(); <-b.y.dead; return problem(control.CodeInternal) }
		}, "agents"},
		{"server's agent dies when prepared", func(b *bench) {
			b.y.commit = func() error { go b.y.kill(); <-b.y.dead; return problem(control.CodeInternal) }
		}, "agent y"},
		{"client's agent dies when prepared", func(b *bench) {
			b.x.commit = func() error { go b.x.kill(); <-b.x.dead; return problem(control.CodeInternal) }
		}, "agent x"},
		{"rules of the server's side", rules("server"), "table full"},
		{"rules between agents", rules("pair"), "table full"},
		{"rules of the client's side", rules("client"), "table full"},
		{"server unknown", func(b *bench) { b.net.RemoveHost(hostB.Addr()) }, "host not found"},
		{"client's agent dead", func(b *bench) { b.x.kill() }, "agents"},
		{"server's agent dead", func(b *bench) { b.y.kill() }, "agents"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			c.set(b)
			_, held := b.syn(hostA)
			if got := b.fate(held); got != "forwarded" {
				t.Errorf("the packet was %s", got)
			}
			b.clean()
			if x, y := b.x.count(), b.y.count(); x+y != 0 {
				b.eventually("the agents have forgotten it", func() bool { return b.x.count()+b.y.count() == 0 })
			}
			past := b.past()
			if len(past) != 1 || !strings.Contains(past[0].How, c.why) {
				t.Errorf("history %+v, want a reason with %q", past, c.why)
			}
			// A packet that is sent again must not go to agents, because a server may have received
			// it.
			if verdict, again := b.syn(hostA); verdict != network.Continue || again != nil {
				t.Errorf("the same first packet again: verdict %v, held %v", verdict, again != nil)
			}
			events := b.net.events()
			if i, j := slices.Index(events, "remove server"), slices.Index(events, "forward"); i > j {
				t.Errorf("forwarded before the rules were gone: %v", events)
			}
		})
	}
}

func TestFullAgentIsPassedOver(t *testing.T) {
	b := newBench(t)
	b.add("x2", b.x2, netip.MustParseAddr("10.0.0.13"))
	b.x.prepare = func(agentapi.PrepareRequest) error { return &control.Problem{Code: control.CodeFull, Title: "full"} }
	_, held := b.syn(hostA)
	if got := b.fate(held); got != "released" {
		t.Fatalf("the packet was %s", got)
	}
	if b.x2.count() != 1 {
		t.Error("the session did not go to the other agent")
	}
	b.eventually("the server's agent has one session", func() bool { return b.y.count() == 1 })
}

func TestWhatIsNotOffered(t *testing.T) {
	b := newBench(t)
	if verdict, held := b.syn(netip.MustParseAddrPort("10.9.9.9:1000")); verdict != network.Continue || held != nil {
		t.Error("a client that is not on the whitelist was taken")
	}
	if verdict, held := b.syn(netip.AddrPortFrom(agentX.Addr(), 1000)); verdict != network.Continue || held != nil {
		t.Error("an agent's own connection was taken")
	}
	off := false
	if _, err := b.service.selection.setConfig(t.Context(), ConfigChange{Enabled: &off}); err != nil {
		t.Fatal(err)
	}
	if verdict, held := b.syn(hostA); verdict != network.Continue || held != nil {
		t.Error("a connection was taken although SOS is disabled")
	}
	b.eventually("punt rules are gone", func() bool {
		for key, rules := range b.net.snapshot() {
			if keyKind(key) == "punt" && len(rules) > 0 {
				return false
			}
		}
		return true
	})
}

// TestSignedConnectionsGoDirectly checks that a connection whose first packet is signed by its ends is
// not held, and that it is counted if it is on the whitelist.
func TestSignedConnectionsGoDirectly(t *testing.T) {
	b := newBench(t)
	b.agentsUp()
	signed := func(from netip.AddrPort, option ...byte) network.Verdict {
		frame := packet.AppendTCP(nil, packet.Frame{Dst: macB, Src: macA}, packet.TCPSegment{
			Src: from, Dst: hostB, Flags: packet.SYN, Seq: firstISN, Options: append(option, make([]byte, int(option[1])-len(option)+2)...),
		})
		h, err := packet.Parse(frame)
		if err != nil {
			t.Fatal(err)
		}
		return b.service.HandlePacketIn(&network.PacketIn{Headers: h, Data: frame, InPort: portA})
	}
	for _, v := range []network.Verdict{signed(hostA, 19, 18), signed(hostA, 29, 16, 1, 1), signed(netip.MustParseAddrPort("10.9.9.9:1000"), 19, 18)} {
		if v != network.Continue {
			t.Errorf("verdict %v, want the packet to go on", v)
		}
	}
	b.service.mu.Lock()
	defer b.service.mu.Unlock()
	if d := b.service.sessions.directs[ReasonSigned]; d == nil || d.Count != 2 || d.Remedy == "" {
		t.Errorf("counted %+v, want the two that are on the whitelist", d)
	}
	if n := len(b.service.sessions.byFlow); n > 0 {
		t.Errorf("%d sessions", n)
	}
}

// TestClientsDSCPReachesTheServer checks that the agent of the server sends with the DSCP of the client's first
// packet, without a class of traffic, too.
func TestClientsDSCPReachesTheServer(t *testing.T) {
	l := Layout{DSCP: 46}
	if got, want := l.marks(agentapi.RoleServer), (agentapi.Marks{End: 46}); got != want {
		t.Errorf("the server's agent marks %+v, want %+v", got, want)
	}
	if got := l.marks(agentapi.RoleClient); got != (agentapi.Marks{}) {
		t.Errorf("the client's agent marks %+v, want nothing", got)
	}
}

// TestFloodIsBounded sends more first packets than may be set up at the same time.
func TestFloodIsBounded(t *testing.T) {
	b := newBench(t)
	bound, perClient := 20, 8
	if _, err := b.service.selection.setConfig(t.Context(), ConfigChange{MaxSetups: &bound, MaxSetupsPerClient: &perClient}); err != nil {
		t.Fatal(err)
	}
	answer := make(chan struct{})
	b.y.commit = func() error { <-answer; return nil }
	var held []*fakeHeld
	taken := map[netip.Addr]int{}
	for client := range 5 {
		for port := range 50 {
			from := netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", 100+client)), uint16(1000+port))
			if _, h := b.syn(from); h != nil {
				held = append(held, h)
				taken[from.Addr()]++
			}
		}
	}
	if len(held) != bound {
		t.Errorf("%d packets are held, the bound is %d", len(held), bound)
	}
	for client, n := range taken {
		if n > perClient {
			t.Errorf("client %v has %d, the bound is %d", client, n, perClient)
		}
	}
	close(answer)
	for _, h := range held {
		if got := b.fate(h); got != "released" {
			t.Errorf("a packet was %s", got)
		}
	}
}

// TestLostAgent kills the client's agent. It checks that the server's agent is told, and that the
// client gets a reset with the expected sequence number.
func TestLostAgent(t *testing.T) {
	b := newBench(t)
	_, held := b.syn(hostA)
	if got := b.fate(held); got != "released" {
		t.Fatalf("the packet was %s", got)
	}
	b.x.kill()
	var probes []packet.Headers
	for len(probes) < 2 {
		probes = append(probes, b.frameTo(hostA))
	}
	if d := probes[0].Seq - probes[1].Seq; d != 1<<31 {
		t.Errorf("probes %d apart, want 2^31", d)
	}
	for _, p := range probes {
		if p.Source() != hostB || p.Destination() != hostA || p.EthSrc != macB || p.EthDst != macA || p.TCPFlags != packet.ACK {
			t.Errorf("probe %v > %v, %v > %v, flags %#x", p.Source(), p.Destination(), p.EthSrc, p.EthDst, p.TCPFlags)
		}
	}
	var punt []network.Rule
	for key, rules := range b.net.snapshot() {
		if keyKind(key) == "client" {
			punt = rules
		}
	}
	sameRules(t, "punt", punt, []network.Rule{rewriting(1, connection(portA, hostA, hostB), openflow.OutputController(0xffff))})
	h := packet.Headers{
		Layers: packet.Ethernet | packet.IPv4 | packet.TCP, EthSrc: macA, EthDst: macB, Src: hostA.Addr(), Dst: hostB.Addr(),
		SrcPort: hostA.Port(), DstPort: hostB.Port(), TCPFlags: packet.ACK, Seq: 1111, Ack: 2222,
	}
	if v := b.service.segment(at(1, portA), &h, nil); v != network.Stop {
		t.Errorf("verdict %v", v)
	}
	var rst packet.Headers
	for rst.TCPFlags&packet.RST == 0 {
		rst = b.frameTo(hostA)
	}
	if rst.Seq != 2222 || rst.Source() != hostB || rst.Destination() != hostA {
		t.Errorf("reset %v > %v with sequence number %d, want 2222", rst.Source(), rst.Destination(), rst.Seq)
	}
	b.clean()
	if b.y.count() != 0 {
		t.Error("the other agent still has the session")
	}
	if past := b.past(); len(past) != 1 || past[0].How != "agent lost: x" {
		t.Errorf("history: %+v", past)
	}
}

// TestResetOfTheOtherAgentIsLost kills the server's agent. The client's agent reports that it has
// ended its session, but its reset may have been lost: the controller must reset the client all the
// same.
func TestResetOfTheOtherAgentIsLost(t *testing.T) {
	b := newBench(t)
	_, held := b.syn(hostA)
	if got := b.fate(held); got != "released" {
		t.Fatalf("the packet was %s", got)
	}
	b.y.kill()
	for told := map[netip.AddrPort]bool{}; !told[hostA] || !told[hostB]; {
		h := b.frame()
		told[h.Destination()] = true
	}
	b.clean()
}

// frame returns the next frame that the controller has sent.
func (b *bench) frame() packet.Headers {
	b.t.Helper()
	select {
	case f := <-b.net.Sent:
		h, err := packet.Parse(f)
		if err != nil {
			b.t.Fatal(err)
		}
		return h
	case <-time.After(testTimeout):
		b.t.Fatal("the controller sends nothing")
		return packet.Headers{}
	}
}

// frameTo returns the next frame to one end of a connection. Both ends are told, in either order.
func (b *bench) frameTo(end netip.AddrPort) packet.Headers {
	b.t.Helper()
	for {
		if h := b.frame(); h.Destination() == end {
			return h
		}
	}
}

// TestDrainedAgentAddedAgain drains and removes an agent whose process continues, and checks that
// it is usable when it is added again.
func TestDrainedAgentAddedAgain(t *testing.T) {
	b := newBench(t)
	if err := b.service.agents.Drain(t.Context(), "x", true); err != nil {
		t.Fatal(err)
	}
	if err := b.service.agents.Remove(t.Context(), "x", false); err != nil {
		t.Fatal(err)
	}
	b.add("x", b.x, agentX.Addr())
	b.eventually("the agent takes sessions", func() bool { return b.unfit("x") == "" })
	if _, held := b.syn(hostA); b.fate(held) != "released" {
		t.Error("the agent gets no session")
	}
}

// TestReroute takes down the link on the path and moves the client.
func TestReroute(t *testing.T) {
	b := newBench(t)
	_, held := b.syn(hostA)
	if got := b.fate(held); got != "released" {
		t.Fatalf("the packet was %s", got)
	}
	b.net.SetTopology(topology.New(2, []openflow.DatapathID{1, 2, 3}, links(
		[2]network.PortRef{at(1, 8), at(3, 1)}, [2]network.PortRef{at(3, 2), at(2, 8)})))
	moved, _ := b.net.HostByIP(hostA.Addr())
	moved.At = at(3, 7)
	b.net.SetHost(moved)
	b.service.NetworkChanged(network.Event{Kind: network.LinkDown})
	want := figure()
	want.ClientSide.Path = []network.Hop{hop(3, 7, 1), hop(1, 8, portX)}
	want.ClientSide.PuntsSYN = true
	client, _ := bothSides(t, want, everything)
	before := figure()
	before.ClientSide.PuntsSYN = true
	was, _ := bothSides(t, before, everything)
	silenced := was[len(was)-1] // packets from its former place lead nowhere
	silenced.Actions = nil
	client = append(client, silenced)
	id := b.x.only(t)
	b.eventually("rules follow the client", func() bool {
		rules := b.net.snapshot()["session/"+id.String()+"/client"]
		return len(rules) == len(client) && rules[0].Switch == client[0].Switch
	})
	sameRules(t, "client", b.net.snapshot()["session/"+id.String()+"/client"], client)
	pair, err := pairXY([]network.Hop{hop(1, portX, 8), hop(3, 1, 2), hop(2, 8, portY)}).Rules(everything)
	if err != nil {
		t.Fatal(err)
	}
	b.eventually("the agents' path avoids the link", func() bool { return len(b.net.snapshot()["pair/10.0.0.11/10.0.0.12"]) == len(pair) })
	sameRules(t, "pair", b.net.snapshot()["pair/10.0.0.11/10.0.0.12"], pair)
	b.x.finish(id, agentapi.ReasonClosed)
	b.y.finish(id, agentapi.ReasonClosed)
	b.clean()
}

func TestRemovedEntryLeavesSessions(t *testing.T) {
	b := newBench(t)
	_, held := b.syn(hostA)
	b.fate(held)
	list := b.service.selection.snapshot.Load().whitelist
	if err := b.service.selection.entries.Remove(t.Context(), list[0].ID, 0); err != nil {
		t.Fatal(err)
	}
	if n := len(b.net.kept()); n != 3 {
		t.Errorf("%d keys are left, want those of the session: %v", n, b.net.kept())
	}
	if verdict, again := b.syn(netip.AddrPortFrom(hostA.Addr(), 9)); verdict != network.Continue || again != nil {
		t.Error("a new connection was taken")
	}
}
