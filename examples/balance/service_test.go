package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services"
	"github.com/sluice-net/sluice/store"
)

var (
	front = Front{Name: "web", Address: netip.MustParseAddr("10.0.0.100"), Port: 80, Servers: []string{"west", "east"}}
	guest = host{at(1, 1), openflow.MAC{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("10.0.0.1")}
	hosts = map[string]host{
		"west": {at(2, 1), openflow.MAC{2, 0, 0, 0, 0, 11}, netip.MustParseAddr("10.0.0.11")},
		"east": {at(2, 2), openflow.MAC{2, 0, 0, 0, 0, 12}, netip.MustParseAddr("10.0.0.12")},
	}
)

type host struct {
	at   network.PortRef
	mac  openflow.MAC
	addr netip.Addr
}

func at(d openflow.DatapathID, port uint32) network.PortRef {
	return network.PortRef{Switch: d, Port: port}
}

// frame is one that has left the network.
type frame struct {
	at network.PortRef
	packet.Headers
}

// bench is the service on two fake switches, with an agent beside each of two servers.
type bench struct {
	*servicetest.Controller
	t       *testing.T
	service *balance
	agents  map[string]*control.Server[Answers, control.Nothing]
	left    chan frame
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, agents: map[string]*control.Server[Answers, control.Nothing]{}, left: make(chan frame, 256)}
	b.Controller = servicetest.Start(t, servicetest.Fabric{
		Switches: 2, Ports: 4, Links: [][2]network.PortRef{{at(1, 4), at(2, 4)}},
		OnOutput: func(at network.PortRef, data []byte) {
			if h, err := packet.Parse(data); err == nil && (h.Has(packet.TCP) || h.ARPOp == packet.ARPReply) {
				b.left <- frame{at, h}
			}
		},
	}, func(n *network.Network, st store.Store) (func(context.Context) error, error) {
		s, err := newBalance(kit.Parts{Config: services.DefaultConfig(), Network: n, Store: st, Bus: event.NewBus(1, 16), Log: slog.New(slog.DiscardHandler), Treatments: &network.Treatments{}})
		if err != nil {
			return nil, err
		}
		b.service = s.(*balance)
		return s.Run, nil
	})
	<-b.service.Loaded()
	for name, h := range hosts {
		agent := control.NewServer[Answers](control.Options[control.Nothing]{Log: slog.New(slog.DiscardHandler)})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		b.must(err)
		done := make(chan error, 1)
		go func() { done <- agent.Serve(l, nil) }()
		t.Cleanup(func() { agent.Close(); <-done })
		agent.Record(Answers{true})
		b.agents[name] = agent
		b.must(b.service.servers.Add(t.Context(), agents.AgentRecord{Name: name, URL: "http://" + l.Addr().String(), Addrs: []netip.Addr{h.addr}}))
	}
	b.known()
	b.must(b.service.Add(t.Context(), front.Name, front))
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// known has the hosts say where they are, until all servers can be used.
func (b *bench) known() {
	b.t.Helper()
	b.eventually("the servers", func() bool {
		b.announce(guest)
		for name, h := range hosts {
			b.announce(h)
			if _, err := b.service.servers.Find(name, h.addr); err != nil {
				return false
			}
		}
		return true
	})
}

func (b *bench) announce(h host) {
	b.receive(h.at, packet.AppendARPRequest(nil, h.mac, h.addr, h.addr, 0))
}

func (b *bench) receive(at network.PortRef, data []byte) {
	b.t.Helper()
	_, err := b.Switch(at.Switch).Receive(at.Port, data)
	b.must(err)
}

// next returns the next frame of a kind that leaves.
func (b *bench) next(what string, is func(*frame) bool) frame {
	b.t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case f := <-b.left:
			if is(&f) {
				return f
			}
		case <-deadline:
			b.t.Fatalf("waited in vain for %s: %v", what, b.service.show(b.service.Items()))
		}
	}
}

// connects sends a segment of the client, and returns the server that it comes to.
func (b *bench) connects(port uint16, seq uint32) string {
	b.t.Helper()
	v, _ := b.Network.Virtual(front.Address)
	b.receive(guest.at, packet.AppendTCP(nil, packet.Frame{Src: guest.mac, Dst: v.MAC}, packet.TCPSegment{
		Src: netip.AddrPortFrom(guest.addr, port), Dst: netip.AddrPortFrom(front.Address, front.Port), Flags: packet.SYN, Seq: seq,
	}))
	f := b.next(fmt.Sprintf("segment %d from port %d", seq, port), func(f *frame) bool { return f.SrcPort == port && f.Seq == seq })
	for name, h := range hosts {
		if f.at == h.at && f.EthDst == h.mac && f.Dst == h.addr && f.Src == guest.addr {
			return name
		}
	}
	b.t.Fatalf("the segment has left as %+v", f)
	return ""
}

func (b *bench) eventually(what string, is func() bool) {
	b.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			b.t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

// serverOf returns the server that a connection has.
func (b *bench) serverOf(port uint16) string {
	return b.service.flows.Values()[front.Name+" "+netip.AddrPortFrom(guest.addr, port).String()].Server
}

// Connections to a virtual address are spread over servers, and rewritten in both directions. They stay
// where they are over a restart, and leave a server that does not answer.
func TestBalance(t *testing.T) {
	b := newBench(t)
	v, _ := b.Network.Virtual(front.Address)
	b.receive(guest.at, packet.AppendARPRequest(nil, guest.mac, guest.addr, front.Address, 0))
	reply := b.next("an answer by ARP", func(f *frame) bool { return f.ARPOp == packet.ARPReply && f.at == guest.at })
	if reply.ARPSHA != v.MAC || reply.Src != front.Address {
		t.Errorf("answered %+v", reply)
	}
	first, second := b.connects(1001, 1), b.connects(1002, 1)
	if first == second {
		t.Errorf("both connections go to %s", first)
	}
	from := hosts[first]
	b.receive(from.at, packet.AppendTCP(nil, packet.Frame{Src: from.mac, Dst: guest.mac}, packet.TCPSegment{
		Src: netip.AddrPortFrom(from.addr, front.Port), Dst: netip.AddrPortFrom(guest.addr, 1001), Flags: packet.SYN | packet.ACK, Seq: 7,
	}))
	back := b.next("the server's answer", func(f *frame) bool { return f.Seq == 7 })
	if back.at != guest.at || back.Src != front.Address || back.EthSrc != v.MAC || back.EthDst != guest.mac {
		t.Errorf("the answer has left as %+v", back)
	}

	b.Restart()
	b.known()
	if again := b.connects(1001, 2); again != first {
		t.Errorf("after a restart the connection goes to %s, was to %s", again, first)
	}

	b.agents[first].Record(Answers{false})
	b.eventually("the connection to leave the server", func() bool { return b.serverOf(1001) == second })
	b.eventually("the rules to lead it", func() bool { return b.connects(1001, 3) == second })
	if third := b.connects(1003, 1); third != second {
		t.Errorf("a new connection goes to %s, which does not answer", third)
	}

	b.must(b.service.Remove(t.Context(), front.Name, 0))
	b.eventually("the connections to end", func() bool { return len(b.service.flows.Values()) == 0 })
	if _, virtual := b.Network.Virtual(front.Address); virtual {
		t.Error("the address is still virtual")
	}
}

// Two fronts may have one address, at different ports.
func TestFrontsOfOneAddress(t *testing.T) {
	b := newBench(t)
	other := front
	other.Name = "other"
	if err := b.service.Add(t.Context(), other.Name, other); err == nil {
		t.Error("two fronts have one address and port")
	}
	other.Port = 443
	b.must(b.service.Add(t.Context(), other.Name, other))
}
