package network_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// start runs a network on a loopback port until the test ends or stop is called.
func start(t *testing.T, c network.Config, prepare ...func(*network.Network)) (n *network.Network, stop func()) {
	t.Helper()
	c.Listen = []string{"127.0.0.1:0"}
	if c.DiscoveryInterval == 0 {
		c.DiscoveryInterval, c.DiscoverySettle = 100*time.Millisecond, 50*time.Millisecond
	}
	n, err := network.New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range prepare {
		p(n)
	}
	return n, background(t, n.Run)
}

// background runs f until the test ends or stop is called.
func background(t *testing.T, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// connect runs a fake switch against the network and waits until it is up.
func connect(t *testing.T, n *network.Network, s *fake.Switch, dpid openflow.DatapathID) (stop func()) {
	t.Helper()
	stop = background(t, func(ctx context.Context) error { return s.Dial(ctx, n.Addr()[0]) })
	up(t, n, dpid)
	return stop
}

func up(t *testing.T, n *network.Network, dpid openflow.DatapathID) {
	t.Helper()
	eventually(t, "switch "+dpid.String()+" to be up", func() bool {
		_, ok := n.Switch(dpid)
		return ok
	})
}

func down(t *testing.T, n *network.Network, dpid openflow.DatapathID) {
	t.Helper()
	eventually(t, "switch "+dpid.String()+" to be down", func() bool {
		_, ok := n.Switch(dpid)
		return !ok
	})
}

// edges waits until ports 1 to count of the switch are edge ports, and the rules
// that default forwarding has for them are there.
func edges(t *testing.T, n *network.Network, dpid openflow.DatapathID, count int) {
	t.Helper()
	eventually(t, "edge ports", func() bool {
		for p := range uint32(count) {
			if !n.IsEdge(network.PortRef{Switch: dpid, Port: p + 1}) {
				return false
			}
		}
		if !slices.Contains(n.Handlers(), "forwarding") {
			return true
		}
		s, ok := n.Switch(dpid)
		if !ok {
			return false
		}
		base := 0
		for _, r := range s.Rules() {
			if r.Owner == "network" && strings.HasPrefix(r.Name, "base/") && r.Confirmed {
				base++
			}
		}
		return base >= 2*count
	})
}

func hostMAC(i int) openflow.MAC { return openflow.MAC{0x02, 0, 0, 0, byte(i >> 8), byte(i)} }

// frame is a TCP segment from host i to host j.
func frame(i, j int) []byte {
	src, dst := hostMAC(i), hostMAC(j)
	return packet.AppendTCP(nil, packet.Frame{Src: src, Dst: dst}, packet.TCPSegment{
		Src: hostAddr(i), Dst: hostAddr(j), Flags: packet.SYN, Window: 1000,
	})
}

func hostAddr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), uint16(1000+i))
}

func owner(t *testing.T, n *network.Network, name string, o network.OwnerOptions) *network.Owner {
	t.Helper()
	w, err := n.Owner(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}
