package network_test

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// TestLoopThroughABridgeIsBlocked connects two edge ports by a bridge that forwards all but LLDP, and
// checks that frames stop circulating, that the loop is named, and that both ports are used again
// when the bridge is gone.
func TestLoopThroughABridgeIsBlocked(t *testing.T) {
	t.Parallel()
	const host, first, second = 1, 2, 3 // ports
	n, _ := networktest.Start(t, network.Config{})
	var bridged atomic.Bool
	var copies atomic.Int64 // frames of the host that the bridge has carried
	var found, gone atomic.Int64
	n.Subscribe(func(e network.Event) {
		switch e.Kind {
		case network.LoopFound:
			found.Add(1)
		case network.LoopGone:
			gone.Add(1)
		}
	})
	var s *fake.Switch
	carried := make(chan func(), 1<<12)
	s = fake.NewSwitch(fake.Options{DPID: 1, Ports: second, OnOutput: func(port uint32, frame []byte) {
		h, err := packet.Parse(frame)
		if port == host || !bridged.Load() || err != nil || h.Has(packet.LLDP) {
			return
		}
		if h.EthSrc == networktest.HostMAC(host) {
			copies.Add(1)
		}
		frame = slices.Clone(frame)
		select {
		case carried <- func() { _, _ = s.Receive(first+second-port, frame) }: // it may have ended
		default:
		}
	}})
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			select {
			case carry := <-carried:
				carry()
			case <-stop:
				return
			}
		}
	}()
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, second)
	say := func() {
		frame := packet.AppendARPRequest(nil, networktest.HostMAC(host), networktest.HostAddr(host).Addr(), netip.MustParseAddr("10.9.9.9"), 0)
		if _, err := s.Receive(host, frame); err != nil {
			t.Error(err)
		}
	}
	bridged.Store(true)
	say()
	networktest.Eventually(t, "the loop to be named", func() bool { return len(n.Loops()) == 1 && found.Load() == 1 })
	loop := n.Loops()[0]
	if a, b := loop.Blocked.Port+loop.Other.Port, uint32(first+second); a != b || n.IsEdge(loop.Blocked) || !n.IsEdge(loop.Other) {
		t.Errorf("%+v", loop)
	}
	blocked := openflow.MustMatch(openflow.InPort(loop.Blocked.Port))
	networktest.Eventually(t, "the blocked port to drop what it receives", func() bool {
		sw, _ := n.Switch(1)
		return slices.ContainsFunc(sw.Rules(), func(r network.InstalledRule) bool { return len(r.Actions) == 0 && r.Match == blocked })
	})
	networktest.Eventually(t, "what circulated to end", func() bool { return len(carried) == 0 })
	before := copies.Load()
	say()
	networktest.Eventually(t, "the frame to go by the open port", func() bool { return copies.Load() > before })
	networktest.Eventually(t, "what it caused to end", func() bool { return len(carried) == 0 })
	if got := copies.Load() - before; got != 1 {
		t.Errorf("the bridge has carried %d copies of one frame", got)
	}
	bridged.Store(false)
	networktest.Eventually(t, "both ports to be used again", func() bool {
		return len(n.Loops()) == 0 && gone.Load() == 1 && n.IsEdge(loop.Blocked) && n.IsEdge(loop.Other)
	})
	if found.Load() != 1 {
		t.Errorf("the loop was told %d times", found.Load())
	}
}
