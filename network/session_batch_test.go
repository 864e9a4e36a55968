package network_test

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// TestLongBatchIsParted checks that the output of a batch of input is written after a millisecond,
// without waiting for everything that the switch has sent at once, so that others get their turn.
func TestLongBatchIsParted(t *testing.T) {
	out := newOutputs()
	seen := 0
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) {
		n.AddHandler(100, handlerFunc{"slow", func(p *network.PacketIn) network.Verdict {
			if p.Headers.EthSrc != networktest.HostMAC(1) {
				return network.Continue
			}
			switch seen++; seen {
			case 1: // it is flooded
				for began := time.Now(); time.Since(began) < 5*time.Millisecond; {
				}
				return network.Continue
			case 20:
				out.next(t, 1)
			}
			return network.Stop
		}})
	})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, OnOutput: out.take})
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 2)
	var all []byte
	for range 20 {
		f := networktest.Frame(1, 2)
		b, err := (&openflow.PacketIn{BufferID: openflow.NoBuffer, TotalLen: uint16(len(f)), InPort: 1, Data: f}).AppendTo(all, 1)
		if err != nil {
			t.Fatal(err)
		}
		all = b
	}
	if _, err := s.Write(all); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "all to be handled", func() bool {
		sw, ok := n.Switch(1)
		return ok && sw.Stats().PacketIns >= 20
	})
}
