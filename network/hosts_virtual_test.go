package network_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// TestVirtualAddress checks that the network answers for virtual addresses, to broadcasts and to
// hosts that know them already; that all other packets to them reach nobody; and that no host can
// claim them and none is probed for them.
func TestVirtualAddress(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.9.9"), netip.MustParseAddr("fd00::99")
	given := openflow.MAC{2, 9, 9, 9, 9, 9}
	type sent struct {
		port uint32
		h    packet.Headers
	}
	left := make(chan sent, 64)
	n, _ := networktest.Start(t, network.Config{})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, OnOutput: func(port uint32, frame []byte) {
		if h, err := packet.Parse(frame); err == nil && !h.Has(packet.LLDP) && h.EthType != packet.TypeLLDP && h.EthType != discovery.LoopType {
			left <- sent{port, h}
		}
	}})
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 2)
	host, own := networktest.HostMAC(1), networktest.HostAddr(1).Addr()
	receive := func(port uint32, frame []byte) {
		t.Helper()
		if _, err := s.Receive(port, frame); err != nil {
			t.Fatal(err)
		}
	}
	ask := packet.AppendARPRequest(nil, host, own, v4, 0)
	directly := packet.AppendARP(nil, packet.Frame{Src: host, Dst: network.VirtualMAC(v4)},
		packet.ARPMessage{Op: packet.ARPRequest, SenderMAC: host, Sender: own, Target: v4})
	solicit := packet.AppendNeighborSolicitation(nil, host, netip.MustParseAddr("fe80::1"), v6, 0)
	// The host claims the address before it is virtual, and again when it is.
	claim := packet.AppendARPRequest(nil, networktest.HostMAC(2), v4, own, 0)
	receive(2, claim)
	networktest.Eventually(t, "the host to be known", func() bool { _, known := n.HostByIP(v4); return known })
	if err := n.SetVirtual("balance", map[netip.Addr]openflow.MAC{v4: {}, v6: given}); err != nil {
		t.Fatal(err)
	}
	if _, known := n.HostByIP(v4); known {
		t.Error("a host still has the virtual address")
	}
	receive(2, claim)
	for len(left) > 0 {
		<-left
	}
	next := func(what string) packet.Headers {
		t.Helper()
		for {
			select {
			case x := <-left:
				if x.port == 1 {
					return x.h
				}
				if x.h.EthSrc != networktest.HostMAC(2) && x.h.EthDst != packet.Broadcast {
					t.Errorf("%s: a frame has left by port 2: %+v", what, x.h)
				}
			case <-time.After(networktest.Timeout):
				t.Fatalf("waited in vain for %s", what)
			}
		}
	}
	for what, frame := range map[string][]byte{"an answer to all": ask, "an answer to who asks again": directly} {
		receive(1, frame)
		for h := next(what); ; h = next(what) {
			if h.ARPOp == packet.ARPReply {
				if h.Src != v4 || h.ARPSHA != network.VirtualMAC(v4) || h.EthDst != host {
					t.Errorf("%s: %+v", what, h)
				}
				break
			}
		}
	}
	receive(1, packet.AppendTCP(nil, packet.Frame{Src: host, Dst: network.VirtualMAC(v4)}, packet.TCPSegment{Src: networktest.HostAddr(1), Dst: netip.AddrPortFrom(v4, 80)}))
	receive(1, solicit)
	for h := next("an advertisement"); ; h = next("an advertisement") {
		if h.Has(packet.TCP) {
			t.Errorf("a segment to the virtual address has left: %+v", h)
		}
		if h.ICMPType == packet.NeighborAdvertisement {
			if h.NDTarget != v6 || h.NDLink != given || h.NDFlags&packet.NDRouter != 0 {
				t.Errorf("advertised: %+v", h)
			}
			break
		}
	}
	if _, known := n.HostByIP(v4); known {
		t.Error("the virtual address is believed to be a host's")
	}
	if _, err := n.ResolveHost(t.Context(), v4); !errors.Is(err, network.ErrVirtual) {
		t.Errorf("resolved: %v, want %v", err, network.ErrVirtual)
	}
	if v, ok := n.Virtual(v6); !ok || v != (network.Virtual{Service: "balance", MAC: given}) {
		t.Errorf("%v: %+v, %v", v6, v, ok)
	}
	for what, wrong := range map[string]map[netip.Addr]openflow.MAC{
		"another's":   {v4: {}},
		"a group":     {netip.MustParseAddr("224.0.0.5"): {}},
		"a group MAC": {netip.MustParseAddr("10.0.9.1"): packet.Broadcast},
	} {
		if err := n.SetVirtual("other", wrong); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
	if err := n.SetVirtual("balance", nil); err != nil {
		t.Fatal(err)
	}
	receive(2, claim)
	networktest.Eventually(t, "the host to be known again", func() bool { _, known := n.HostByIP(v4); return known })
}
