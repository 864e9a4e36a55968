package network_test

import (
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
)

// TestAddressInUse checks that an address is in use as long as a host answers for it, whatever the
// host table says, and that two callers may ask for the same.
func TestAddressInUse(t *testing.T) {
	t.Parallel()
	n, _ := networktest.Start(t, network.Config{})
	addr := networktest.HostAddr(7).Addr()
	var silent atomic.Bool
	var s *fake.Switch
	s = fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, OnOutput: func(port uint32, frame []byte) {
		h, err := packet.Parse(frame)
		if err == nil && port == 2 && h.Has(packet.ARP) && h.ARPOp == packet.ARPRequest && h.Dst == addr && !silent.Load() {
			go s.Receive(2, packet.AppendARPReply(nil, &h, networktest.HostMAC(7))) //nolint:errcheck // it has ended
		}
	}})
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 2)
	answers := make(chan bool, 2)
	for range cap(answers) {
		go func() {
			mac, used := n.AddressInUse(t.Context(), addr)
			answers <- used && mac == networktest.HostMAC(7)
		}()
	}
	for range cap(answers) {
		if !<-answers {
			t.Error("the host that answers was not found")
		}
	}
	silent.Store(true)
	if _, known := n.HostByIP(addr); !known {
		t.Error("the host is not in the table")
	}
	networktest.Eventually(t, "the address to be free, but for answers that were under way", func() bool {
		_, used := n.AddressInUse(t.Context(), addr)
		return !used
	})
}
