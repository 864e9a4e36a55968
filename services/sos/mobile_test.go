package sos

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// home is the address by which the moving client is known, and radio one that it uses.
var (
	home  = openflow.MAC{2, 0, 0, 0, 7, 0}
	radio = openflow.MAC{2, 0, 0, 0, 7, 1}
)

const border = 9 // a port of switch 1

// roam moves the client to an edge port. Below switch 1 are the edges 3 and 4.
func (b *bench) roam(place network.PortRef) {
	b.net.SetTopology(topology.New(7, []openflow.DatapathID{1, 2, 3, 4}, links(
		[2]network.PortRef{at(1, 5), at(3, 1)}, [2]network.PortRef{at(1, 6), at(4, 1)}, [2]network.PortRef{at(1, wan), at(2, wan)})))
	b.net.mu.Lock()
	defer b.net.mu.Unlock()
	b.net.moving = map[netip.Addr]network.Anchor{hostA.Addr(): {MAC: home, Borders: []network.PortRef{at(1, border)}, Place: network.Pin{MAC: radio, At: place}}}
}

// TestMovingClient carries a session of a client that moves. It checks that the session's rules are
// at the border, and that they do not change when the client moves.
func TestMovingClient(t *testing.T) {
	b := newBench(t)
	b.roam(at(3, 7))
	for _, elsewhere := range []network.PortRef{at(3, 7), at(4, 7), at(1, portA), at(1, border)} {
		if verdict, held := b.synAt(hostA, elsewhere); verdict != network.Continue || held != nil {
			t.Errorf("at %v its first packet was taken: %v", elsewhere, verdict)
		}
	}
	_, held := b.synAt(hostA, at(1, 5))
	if got := b.fate(held); got != "released" {
		t.Fatalf("the packet was %s", got)
	}
	id := b.x.only(t)
	key := "session/" + id.String() + "/client"
	before := b.net.snapshot()[key]
	b.roam(at(4, 7))
	b.service.NetworkChanged(network.Event{Kind: network.HostMoved})
	b.roam(at(1, 7)) // at the border's own switch it is unknown until it is there
	b.service.NetworkChanged(network.Event{Kind: network.HostMoved})
	b.eventually("a rule for the port at the border", func() bool { return len(b.net.snapshot()[key]) == len(before)+1 })
	b.roam(at(3, 7))
	b.service.NetworkChanged(network.Event{Kind: network.HostMoved})
	b.eventually("the rules of before", func() bool { return len(b.net.snapshot()[key]) == len(before) })
	sameRules(t, "client", b.net.snapshot()[key], before)
	if live := b.service.records("live"); len(live) != 1 {
		t.Errorf("sessions: %+v", live)
	}
}

// TestMovingClientLeaves ends the session of a client that no service places any more.
func TestMovingClientLeaves(t *testing.T) {
	b := newBench(t)
	b.roam(at(3, 7))
	_, held := b.synAt(hostA, at(1, 5))
	b.fate(held)
	b.service.NetworkChanged(network.Event{Kind: network.HostMoved})
	b.eventually("the client is seen to be led", func() bool {
		b.service.mu.Lock()
		defer b.service.mu.Unlock()
		for _, ss := range b.service.sessions.byFlow {
			return ss.anchored[agentapi.RoleClient]
		}
		return false
	})
	b.net.mu.Lock()
	b.net.moving = nil
	b.net.mu.Unlock()
	b.service.NetworkChanged(network.Event{Kind: network.HostMoved})
	b.eventually("the session is over", func() bool { return len(b.past()) == 1 })
	if how := b.past()[0].How; how != "the client has left" {
		t.Errorf("it ended so: %q", how)
	}
	b.clean()
}

// TestMovingClientGoesDirectly checks the reasons why a moving client's connection is not carried.
func TestMovingClientGoesDirectly(t *testing.T) {
	for name, change := range map[string]func(*bench){
		"one table":          func(b *bench) { b.net.oneTable = true },
		"no agent there":     func(b *bench) { b.net.moving[hostA.Addr()].Borders[0].Switch = 3 },
		"the server as well": func(b *bench) { b.net.moving[hostB.Addr()] = b.net.moving[hostA.Addr()] },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.roam(at(3, 7))
			b.net.mu.Lock()
			change(b)
			from := b.net.moving[hostA.Addr()].Borders[0].Switch
			b.net.mu.Unlock()
			port := map[openflow.DatapathID]uint32{1: 5, 3: 1}[from]
			if _, held := b.synAt(hostA, at(from, port)); b.fate(held) != "forwarded" {
				t.Error("it is carried")
			}
			b.eventually("the reason", func() bool {
				b.service.mu.Lock()
				defer b.service.mu.Unlock()
				return b.service.sessions.directs[ReasonMoves] != nil
			})
		})
	}
}

// TestMovingRules sends packets through the session's table of a border. It checks that packets
// from every port of the client reach the agent, those from other ports reach nobody, and those
// from the agent continue to the client's own rules, as if from the server.
func TestMovingRules(t *testing.T) {
	l := figure()
	l.ClientSide.EndMAC, l.ClientSide.PuntsSYN = home, true
	l.ClientSide.MobilePaths = [][]network.Hop{{hop(1, 5, portX)}, {hop(1, 6, portX)}, {hop(8, 1, 4), hop(1, 8, portX)}, {hop(8, 4, 4), hop(1, 8, portX)}}
	l.ClientSide.Path = l.ClientSide.MobilePaths[0]
	rules, err := l.ClientRules(everything)
	if err != nil {
		t.Fatal(err)
	}
	tables := map[openflow.DatapathID]*fake.FlowTable{1: fake.NewFlowTable(nil), 8: fake.NewFlowTable(nil)}
	for _, r := range rules {
		how := []openflow.Instruction{openflow.ApplyActions(r.Actions...)}
		if r.Goto != 0 {
			how = append(how, openflow.GotoTable(1))
		}
		if _, err := tables[r.Switch].Flow(openflow.NewFlowMod(openflow.FlowAdd, 0, r.Priority(), r.Match, how...)); err != nil {
			t.Fatal(err)
		}
	}
	const led = 77 // the port to which the client's own rules lead
	own := openflow.NewFlowMod(openflow.FlowAdd, 1, 1, openflow.MustMatch(openflow.EthType(0x800), openflow.IPDst(hostA.Addr()),
		openflow.EthDst(home), openflow.EthSrc(macB), openflow.IPSrc(hostB.Addr())), openflow.ApplyActions(openflow.Output(led)))
	if _, err := tables[1].Flow(own); err != nil {
		t.Fatal(err)
	}
	send := func(d openflow.DatapathID, in uint32, src, dst openflow.MAC, from, to netip.AddrPort) (out string) {
		p := fake.NewPacket(openflow.EthSrc(src), openflow.EthDst(dst), openflow.EthType(0x800), openflow.IPProto(6), openflow.IPSrc(from.Addr()),
			openflow.IPDst(to.Addr()), openflow.TCPSrc(from.Port()), openflow.TCPDst(to.Port()), openflow.TCPFlags(tcpACK, 0xfff))
		for _, o := range tables[d].Send(in, p).Outputs {
			to, _ := o.Packet.Get(openflow.FieldIPv4Dst)
			out += fmt.Sprintf("%d to %v;", o.Port, to.Addr())
		}
		return out
	}
	toAgent := fmt.Sprintf("%d to %v;", portX, agentX.Addr())
	for _, c := range []struct {
		d    openflow.DatapathID
		in   uint32
		want string
	}{
		{1, 5, toAgent},
		{1, 6, toAgent},
		{1, border, ""},
		{1, portA, ""},
		{8, 1, fmt.Sprintf("%d to %v;", 4, agentX.Addr())},
		{8, 4, fmt.Sprintf("%d to %v;", openflow.PortInPort, agentX.Addr())},
		{8, 9, ""},
	} {
		if got := send(c.d, c.in, home, macB, hostA, hostB); got != c.want {
			t.Errorf("from the client by port %d of switch %d: %q, want %q", c.in, c.d, got, c.want)
		}
	}
	if got, want := send(1, portX, macX, home, agentX, hostA), fmt.Sprintf("%d to %v;", led, hostA.Addr()); got != want {
		t.Errorf("from the agent: %q, want %q", got, want)
	}
	for i, path := range l.ClientSide.MobilePaths {
		got, err := l.Opening(everything, network.PortRef{Switch: path[0].Switch, Port: path[0].In})
		if err != nil || !slices.Contains(got, openflow.Output(path[0].Output())) {
			t.Errorf("path %d: its first packet goes by %v, %v", i, got, err)
		}
	}
	if _, err := l.Opening(everything, at(1, border)); !errors.Is(err, network.ErrNoPath) {
		t.Errorf("a first packet from elsewhere: %v", err)
	}
}

// TestMovingClientIsReset ends the agent of a moving client, and checks that the client is reset
// wherever it is, at the address that it uses there.
func TestMovingClientIsReset(t *testing.T) {
	b := newBench(t)
	b.roam(at(3, 7))
	_, held := b.synAt(hostA, at(1, 5))
	b.fate(held)
	b.x.kill()
	if h := b.frameTo(hostA); h.EthDst != radio || h.EthSrc != macB {
		t.Errorf("the client was asked as %v > %v", h.EthSrc, h.EthDst)
	}
	h := packet.Headers{
		Layers: packet.Ethernet | packet.IPv4 | packet.TCP, EthSrc: home, EthDst: macB, Src: hostA.Addr(), Dst: hostB.Addr(),
		SrcPort: hostA.Port(), DstPort: hostB.Port(), TCPFlags: packet.ACK, Seq: 1111, Ack: 2222,
	}
	if v := b.service.segment(at(1, 6), &h, nil); v != network.Stop {
		t.Errorf("verdict %v", v)
	}
	var rst packet.Headers
	for rst.TCPFlags&packet.RST == 0 {
		rst = b.frameTo(hostA)
	}
	if rst.Seq != 2222 || rst.Source() != hostB || rst.Destination() != hostA || rst.EthDst != radio {
		t.Errorf("reset %v > %v, %v, with sequence number %d, want 2222", rst.Source(), rst.Destination(), rst.EthDst, rst.Seq)
	}
	b.clean()
}
