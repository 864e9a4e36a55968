package network_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// leader is a service that forwards the packets of host 1, which is at port 1: packets from it
// leave by port 3.
type leader struct{}

func (leader) Anchored(netip.Addr) (network.Anchor, bool) { return network.Anchor{}, false }
func (leader) Moving() network.Moving                     { return network.Moving{} }
func (leader) PlaceOf(openflow.MAC, netip.Addr) (network.Pin, bool) {
	return network.Pin{}, false
}

func (leader) ActionsFor(at network.PortRef, h *packet.Headers) ([]openflow.Action, bool) {
	if h.Src != networktest.HostAddr(1).Addr() || at.Port != 1 {
		return nil, h.Src == networktest.HostAddr(1).Addr()
	}
	return []openflow.Action{openflow.Output(3)}, true
}

// TestSelectedPacketsOfALedHost checks that packets which a service has asked for before the rules
// of a mobile host are forwarded by those rules if the service does not take them, and so are
// packets that it has held and releases. A packet with the host's address from another place is
// dropped.
func TestSelectedPacketsOfALedHost(t *testing.T) {
	for _, hold := range []bool{false, true} {
		out := newOutputs()
		k := make(keeper, 1)
		n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) {
			n.AnchorHosts(leader{})
			if hold {
				n.AddHandler(500, k)
			}
		})
		s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 3, Tables: 3, OnOutput: func(port uint32, frame []byte) {
			if packet.TypeIPv4 == int(frame[12])<<8|int(frame[13]) {
				out.take(port, frame)
			}
		}})
		networktest.Connect(t, n, s, 1)
		networktest.Edges(t, n, 1, 3)
		if !n.HasTables(1) {
			t.Fatal("the switch has three tables")
		}
		asking := networktest.Owner(t, n, "asking", network.OwnerOptions{})
		ask := network.Rule{
			Switch: 1, Stage: network.StageSelect, Match: openflow.MustMatch(openflow.EthType(packet.TypeIPv4)),
			Actions: []openflow.Action{openflow.OutputController(openflow.MaxLenNoBuffer)},
		}
		if err := asking.Apply(t.Context(), "ask", network.Program{Rules: []network.Rule{ask}}, network.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
		send := func(port uint32, host int) {
			receive(t, s, port, networktest.Frame(host, 9))
			if !hold {
				return
			}
			select {
			case held := <-k:
				if err := held.Forward(); err != nil {
					t.Error(err)
				}
			case <-time.After(networktest.Timeout):
				t.Fatal("the packet did not come up")
			}
		}
		send(2, 1) // first, because a dropped packet cannot be waited for
		send(1, 1)
		if got := out.next(t, 1); !slices.Equal(got, []uint32{3}) {
			t.Errorf("held %v: the led host's packet left by %v", hold, got)
		}
		send(1, 2) // another host's is flooded
		if got := out.next(t, 2); !slices.Equal(got, []uint32{2, 3}) {
			t.Errorf("held %v: another host's packet left by %v", hold, got)
		}
	}
}
