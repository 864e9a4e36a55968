package sos

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// again passes a first packet to the service as the switch sends it to the controller.
func (b *bench) again(isn uint32, p *fakePunted) network.Verdict {
	h := packet.Headers{
		Layers: packet.Ethernet | packet.IPv4 | packet.TCP, EthSrc: macA, EthDst: macB,
		Src: hostA.Addr(), Dst: hostB.Addr(), SrcPort: hostA.Port(), DstPort: hostB.Port(), TCPFlags: packet.SYN, Seq: isn,
	}
	return b.service.segment(at(1, portA), &h, p)
}

// TestFirstPacketSentAgain sends a session's first packet again, and checks that it goes to the
// session's agent.
func TestFirstPacketSentAgain(t *testing.T) {
	b := newBench(t)
	b.live()
	l := figure()
	l.ClientSide.PuntsSYN = true
	want, err := l.Opening(everything, network.PortRef{})
	if err != nil {
		t.Fatal(err)
	}
	p := &fakePunted{}
	if v := b.again(firstISN, p); v != network.Stop || p.taken || !slices.Equal(p.actions, want) {
		t.Errorf("verdict %v, held %v, sent on by %v, want %v", v, p.taken, p.actions, want)
	}
	p = &fakePunted{held: &fakeHeld{net: b.net, fate: make(chan string, 1)}}
	if v := b.again(firstISN+1, p); v != network.Stop || !p.taken || !slices.Equal(p.actions, want) {
		t.Errorf("of another connection: verdict %v, held %v, sent on by %v, want %v", v, p.taken, p.actions, want)
	}
	if got := b.fate(p.held); got != "dropped" {
		t.Errorf("the session goes on, and the packet of another is %s", got)
	}
}

// TestClientReturns lets a client use its port again before the session's rules are removed.
func TestClientReturns(t *testing.T) {
	b := newBench(t)
	id := b.live()
	b.x.finish(id, agentapi.ReasonClosed)
	b.eventually("the client's agent is done", func() bool {
		b.service.mu.Lock()
		defer b.service.mu.Unlock()
		return len(b.service.sessions.byID[id].ended) == 1
	})
	p := &fakePunted{held: &fakeHeld{net: b.net, fate: make(chan string, 1)}}
	if v := b.again(firstISN+1, p); v != network.Stop || !p.taken {
		t.Fatalf("verdict %v, held %v", v, p.taken)
	}
	more := &fakePunted{}
	if v := b.again(firstISN+1, more); v != network.Stop || more.taken || more.actions != nil {
		t.Errorf("sent again: verdict %v, held %v, sent on by %v", v, more.taken, more.actions)
	}
	b.y.finish(id, agentapi.ReasonClosed)
	if got := b.fate(p.held); got != "released" {
		t.Errorf("the packet was %s", got)
	}
	if b.x.only(t) == id {
		t.Error("it is still the session before")
	}
}

// TestFirstPacketArrivesLate lets copies of a session's first packet reach the controller while the
// session ends, and after its end, when they belong to no connection.
func TestFirstPacketArrivesLate(t *testing.T) {
	b := newBench(t)
	id := b.live()
	b.x.finish(id, agentapi.ReasonClosed)
	b.eventually("the client's agent is done", func() bool {
		b.service.mu.Lock()
		defer b.service.mu.Unlock()
		return len(b.service.sessions.byID[id].ended) == 1
	})
	late := func(when string) {
		t.Helper()
		p := &fakePunted{held: &fakeHeld{net: b.net, fate: make(chan string, 1)}}
		if v := b.again(firstISN, p); v != network.Stop || p.taken || p.actions != nil {
			t.Errorf("%s: verdict %v, held %v, sent on by %v", when, v, p.taken, p.actions)
		}
	}
	late("ending")
	b.y.finish(id, agentapi.ReasonClosed)
	b.eventually("the session is over", func() bool { return len(b.service.records("past")) == 1 })
	late("over")
	if n := len(b.service.records("live")); n > 0 {
		t.Errorf("%d sessions of a connection that is over", n)
	}
}

// TestVirtualServer checks that a first packet to another service's virtual address is left to that
// service.
func TestVirtualServer(t *testing.T) {
	b := newBench(t)
	if err := b.net.SetVirtual("balance", map[netip.Addr]openflow.MAC{hostB.Addr(): {}}); err != nil {
		t.Fatal(err)
	}
	if verdict, held := b.syn(hostA); verdict != network.Continue || held != nil {
		t.Errorf("verdict %v, held %v", verdict, held)
	}
}
