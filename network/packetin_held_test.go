package network_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// keeper is a handler that holds every SYN.
type keeper chan *network.Held

func (keeper) Name() string { return "keeper" }

func (k keeper) HandlePacketIn(p *network.PacketIn) network.Verdict {
	if !p.Headers.IsSYN() {
		return network.Continue
	}
	h, err := p.Hold(time.Minute)
	if err != nil {
		return network.Continue
	}
	k <- h
	return network.Stop
}

// TestReleasedPacketHasItsChecksum checks that a released packet has a valid checksum: a virtual
// machine leaves checksums to its network card, and a virtual switch sends such packets to the
// controller unfinished.
func TestReleasedPacketHasItsChecksum(t *testing.T) {
	k := make(keeper, 1)
	s, left := oneSwitch(t, k)
	whole := networktest.Frame(1, 2)
	h, err := packet.Parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	partial := bytes.Clone(whole)
	copy(partial[h.L4+16:], pseudoSum(whole, &h))
	receive(t, s, 1, partial)
	held := <-k
	leadAway(t, s)
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, left, whole)
}

// oneSwitch returns a fake switch with three edge ports whose packets a handler receives, and the
// IPv4 packets that leave it by the third port.
func oneSwitch(t *testing.T, h network.Handler) (*fake.Switch, <-chan []byte) {
	t.Helper()
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { n.AddHandler(500, h) })
	left := make(chan []byte, 1)
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 3, OnOutput: func(port uint32, frame []byte) {
		if port == 3 && packet.TypeIPv4 == int(frame[12])<<8|int(frame[13]) {
			left <- bytes.Clone(frame)
		}
	}})
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 3)
	return s, left
}

// leadAway writes a rule from the switch's first port to its third.
func leadAway(t *testing.T, s *fake.Switch) {
	t.Helper()
	m := openflow.NewFlowMod(openflow.FlowAdd, 0, 60000, openflow.MustMatch(openflow.InPort(1)), openflow.ApplyActions(openflow.Output(3)))
	if _, e := s.Table().Flow(m); e != nil {
		t.Error(e)
	}
}

// wantLeft waits for a packet to leave.
func wantLeft(t *testing.T, left <-chan []byte, want []byte) {
	t.Helper()
	select {
	case got := <-left:
		if !bytes.Equal(got, want) {
			t.Errorf("left as\n%x, want\n%x", got, want)
		}
	case <-time.After(networktest.Timeout):
		t.Fatal("the packet did not leave")
	}
}

// pseudoSum returns what a sender leaves in place of the checksum: the sum of addresses, protocol
// and length.
func pseudoSum(frame []byte, h *packet.Headers) []byte {
	sum := uint32(h.Proto) + uint32(h.End-h.L4)
	for i := h.L3 + 12; i < h.L3+20; i += 2 {
		sum += uint32(frame[i])<<8 | uint32(frame[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return []byte{byte(sum >> 8), byte(sum)}
}
