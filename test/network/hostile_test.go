package network_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/hostile"
	"github.com/sluice-net/sluice/lab/loadgen"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
)

// A switch that floods packet-ins must not hold back another's session.
func TestFloodOfPacketInsHarmsNoOtherSwitch(t *testing.T) {
	var o *network.Owner
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	check := networktest.Healthy(t, n, o)
	flood := networktest.Background(t, func(ctx context.Context) error {
		_, err := loadgen.Run(ctx, loadgen.Options{
			Address: n.Addr()[0].String(), Switches: 2, Window: 20000, Warmup: time.Millisecond, Duration: networktest.Timeout,
			Settle: 300 * time.Millisecond, FirstDPID: 0x100,
		})
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	networktest.Up(t, n, 0x100)
	networktest.Eventually(t, "the flood to flow", func() bool {
		s, ok := n.Switch(0x100)
		return ok && s.Stats().PacketIns > 10000
	})
	for range 20 {
		check()
	}
	flood()
}

// Whatever a switch does, the link between two others stays, and so do their sessions.
func TestHostileSwitchesHarmNoOther(t *testing.T) {
	t.Parallel()
	for _, kind := range hostile.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			n, _ := networktest.Start(t, network.Config{DiscoveryInterval: 250 * time.Millisecond, DiscoveryTimeout: 20 * time.Second})
			carried := networktest.Pair(t, n, 0xa, 0xb)
			networktest.Background(t, func(ctx context.Context) error {
				kind.Run(ctx, hostile.Target{DPID: 1, Dial: func(ctx context.Context) (net.Conn, error) {
					var d net.Dialer
					return d.DialContext(ctx, "tcp", n.Addr()[0].String())
				}})
				return nil
			})
			before := carried.Load()
			networktest.Eventually(t, "more probes of the link", func() bool { return carried.Load() >= before+8 })
			if got := len(n.Topology().Links); got != 2 {
				t.Errorf("%d links, want 2", got)
			}
		})
	}
}
