package main

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

const (
	watched  = 80  // the TCP port of the connections that are looked at
	maxHeld  = 16  // packets of one connection
	maxFlows = 512 // connections
)

// connections writes rules of its own for each connection, as the page on writing a service
// shows it: they lead what the client sends out by port 2.
type connections struct {
	ctx   context.Context
	rules *network.Owner
	work  sync.WaitGroup

	mu   sync.Mutex
	byID map[string]*connection
}

// connection is one that has been seen.
type connection struct {
	placed bool
	held   []*network.Held // until it is placed
}

func (s *connections) Name() string { return "connections" }

// HandlePacketIn has a connection placed when its first packet comes.
func (s *connections) HandlePacketIn(p *network.PacketIn) network.Verdict {
	if !p.Headers.Has(packet.TCP) || p.Headers.DstPort != watched {
		return network.Continue
	}
	id := p.Headers.Source().String()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.byID[id]
	switch {
	case c != nil && c.placed:
		_ = p.Resubmit() // the switch went by an older decision; TCP repeats what is lost
		return network.Stop
	case c == nil && len(s.byID) >= maxFlows, c != nil && len(c.held) >= maxHeld:
		return network.Continue
	}
	held, err := p.Hold(5 * time.Second)
	if err != nil { // too many packets are held
		return network.Continue
	}
	if c == nil {
		c = &connection{}
		s.byID[id] = c
		s.work.Go(func() { s.place(id, c, held.Packet()) })
	}
	c.held = append(c.held, held)
	return network.Stop
}

// place writes a connection's rules, and then sends the packets that were held through the
// switch's tables, where they meet the rules.
func (s *connections) place(id string, c *connection, first *network.PacketIn) {
	err := s.rules.Apply(s.ctx, id, s.program(first), network.ApplyOptions{})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, held := range c.held {
		if err == nil {
			_ = held.Release()
		} else {
			_ = held.Forward()
		}
	}
	if c.placed, c.held = err == nil, nil; err != nil {
		delete(s.byID, id)
	}
}

func (s *connections) program(first *network.PacketIn) network.Program {
	h := &first.Headers
	return network.Program{Rules: []network.Rule{{
		Switch: first.Switch.DPID(), Stage: network.StageSelect, Offset: 420,
		Match: openflow.MustMatch(openflow.InPort(first.InPort), openflow.EthType(0x0800), openflow.IPProto(6),
			openflow.IPSrc(h.Src), openflow.TCPSrc(h.SrcPort), openflow.TCPDst(watched)),
		Actions: []openflow.Action{openflow.Output(2)},
	}}}
}

// A packet that a switch sends up by an older decision, after the connection's rules have been
// written, goes where the rules lead, as the first one does.
func TestPacketsGoByTheRules(t *testing.T) {
	left := make(chan uint32, 16)
	sw := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, OnOutput: func(port uint32, frame []byte) {
		if h, err := packet.Parse(frame); err == nil && h.Has(packet.TCP) {
			left <- port
		}
	}})
	n, err := network.New(network.Config{Listen: []string{"127.0.0.1:0"}, DisableForwarding: true})
	must(t, err)
	owner, err := n.Owner("connections", network.OwnerOptions{})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	s := &connections{ctx: ctx, rules: owner, byID: map[string]*connection{}}
	n.AddHandler(rule.ChainForwarding-1, s)
	up := make(chan struct{})
	n.Subscribe(func(e network.Event) {
		if e.Kind == network.SwitchUp {
			close(up)
		}
	})
	var running sync.WaitGroup
	defer running.Wait()
	defer s.work.Wait()
	defer cancel()
	running.Go(func() { must(t, n.Run(ctx)) })
	running.Go(func() { must(t, sw.Dial(ctx, n.Addr()[0])) })
	await(t, up)
	must(t, owner.Apply(ctx, "ask", network.Program{Rules: []network.Rule{{
		Switch: 1, Stage: network.StageSelect, Offset: 410, Leased: true, Actions: []openflow.Action{openflow.Output(openflow.PortController)},
		Match: openflow.MustMatch(openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(watched)),
	}}}, network.ApplyOptions{}))

	client, server := netip.MustParseAddrPort("10.0.0.1:5000"), netip.MustParseAddrPort("10.0.0.2:80")
	frame := packet.AppendTCP(nil, packet.Frame{Src: openflow.MAC{2, 0, 0, 0, 0, 1}, Dst: openflow.MAC{2, 0, 0, 0, 0, 2}},
		packet.TCPSegment{Src: client, Dst: server, Flags: packet.SYN})
	_, err = sw.Receive(1, frame)
	must(t, err)
	if port := await(t, left); port != 2 {
		t.Errorf("the first packet leaves by port %d", port)
	}
	late, err := (&openflow.PacketIn{BufferID: openflow.NoBuffer, TotalLen: uint16(len(frame)), InPort: 1, Data: frame}).AppendTo(nil, 0)
	must(t, err)
	_, err = sw.Write(late)
	must(t, err)
	if port := await(t, left); port != 2 {
		t.Errorf("a late packet leaves by port %d", port)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// await returns what comes next.
func await[T any](t *testing.T, from <-chan T) (x T) {
	t.Helper()
	select {
	case x = <-from:
	case <-time.After(time.Minute):
		t.Error("waited in vain")
	}
	return x
}
