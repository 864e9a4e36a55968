package network_test

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
)

// TestManyClaimsHarmNoHostElsewhere checks that a switch which claims 6,000 addresses does not
// affect a host elsewhere: if its address is claimed, the change is announced, the host is probed
// again and gets its address back, and the refused claims are reported.
func TestManyClaimsHarmNoHostElsewhere(t *testing.T) {
	t.Parallel()
	const victim, thief, talker, pinned = 1, 2, 3, 4 // hosts, at the honest switch
	const first, claims = 100, 6_000                 // hosts of a switch that has left
	n, _ := networktest.Start(t, network.Config{HostConfirm: 50 * time.Millisecond, HostGrace: -1, Pinned: map[netip.Addr]network.Pin{
		networktest.HostAddr(pinned).Addr(): {MAC: networktest.HostMAC(pinned), At: network.PortRef{Switch: 2, Port: pinned}},
	}})
	nowhere := netip.MustParseAddr("10.9.9.9")
	var awake atomic.Bool
	var announced, refused atomic.Int64
	n.Subscribe(func(e network.Event) {
		if e.Kind == network.HostRefused && e.Switch == 2 {
			refused.Add(1)
		}
	})
	var honest *fake.Switch
	honest = fake.NewSwitch(fake.Options{DPID: 2, Ports: 4, OnOutput: func(port uint32, frame []byte) {
		h, err := packet.Parse(frame)
		if err != nil || !h.Has(packet.ARP) || h.ARPOp != packet.ARPRequest || h.Dst != networktest.HostAddr(victim).Addr() {
			return
		}
		switch {
		case port == victim && h.EthSrc != networktest.HostMAC(victim) && awake.Load():
			go honest.Receive(victim, packet.AppendARPReply(nil, &h, networktest.HostMAC(victim))) //nolint:errcheck // it has ended
		case port == talker && h.EthSrc == networktest.HostMAC(thief) && h.Src == h.Dst:
			announced.Add(1)
		}
	}})
	hostile, left := fake.NewSwitch(fake.Options{DPID: 1, Ports: 1}), fake.NewSwitch(fake.Options{DPID: 3, Ports: 3})
	networktest.Connect(t, n, hostile, 1)
	networktest.Connect(t, n, honest, 2)
	leave := networktest.Connect(t, n, left, 3)
	networktest.Edges(t, n, 1, 1)
	networktest.Edges(t, n, 2, 4)
	networktest.Edges(t, n, 3, 3)
	say := func(s *fake.Switch, port uint32, mac, addr int) {
		if _, err := s.Receive(port, packet.AppendARPRequest(nil, networktest.HostMAC(mac), networktest.HostAddr(addr).Addr(), nowhere, 0)); err != nil {
			t.Error(err)
		}
	}
	for i := range claims {
		say(left, uint32(1+i%3), first+i, first+i)
	}
	for _, i := range []int{victim, thief, talker} {
		say(honest, uint32(i), i, i)
	}
	networktest.Eventually(t, "the hosts to be known", func() bool { return len(n.Hosts()) == claims+3 })
	leave()
	networktest.Down(t, n, 3)

	taken := func(i int) bool {
		h, known := n.HostByIP(networktest.HostAddr(first + i).Addr())
		return known && h.At.Switch == 1
	}
	const ahead = 256 // claims in flight; more would fill the connection, be read later, and be no claims then
	stop := networktest.Background(t, func(ctx context.Context) error {
		for i := 0; ctx.Err() == nil; i++ {
			if i < claims {
				say(hostile, 1, 0xffff, first+i)
			}
			if i > claims || i%16 == 0 {
				say(hostile, 1, 0xffff, pinned)
			}
			for i%ahead == 0 && i > 0 && !taken(min(i, claims)-1) && ctx.Err() == nil {
				pause.For(time.Millisecond, "the switch waits for what it has claimed")
			}
			if i > claims {
				pause.For(time.Millisecond, "the switch keeps on with the address that it cannot have")
			}
		}
		return nil
	})
	holder := func(i int) bool {
		h, known := n.HostByIP(networktest.HostAddr(victim).Addr())
		return known && h.MAC == networktest.HostMAC(i)
	}
	say(honest, thief, thief, victim)
	networktest.Eventually(t, "the claim to be believed", func() bool { return holder(thief) })
	networktest.Eventually(t, "the address to be announced", func() bool { return announced.Load() > 0 })
	networktest.Eventually(t, "all addresses to be taken", func() bool { return taken(claims - 1) })
	say(honest, thief, thief, pinned)
	networktest.Eventually(t, "what is refused there to be told", func() bool { return refused.Load() > 0 })
	stop()
	awake.Store(true)
	networktest.Eventually(t, "the victim to have back what is its", func() bool { return holder(victim) })
}
