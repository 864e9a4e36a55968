package handover

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// A packet that was sent up for another service before it reached the rules for devices is sent as
// those rules say: along the device's path if it comes from its place, and nowhere if another host
// uses the device's address.
func TestEarlyPackets(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac1)
	r.idle()
	far := netip.MustParseAddr("192.0.2.7")
	for _, c := range []struct {
		what     string
		at       network.PortRef
		src, dst netip.Addr
		mac      openflow.MAC
		outs     int
		ours     bool
	}{
		{"from the device", edge3, ip, far, mac1, 1, true},
		{"to the device, where it is", edge3, far, ip, mac2, 1, true},
		{"from elsewhere with its address", edge4, ip, far, mac1, 0, true},
		{"from elsewhere with a free address of the pool", edge4, ip.Next(), far, mac1, 0, true},
		{"of others", edge4, far, netip.MustParseAddr("192.0.2.8"), mac1, 0, false},
	} {
		h := packet.Headers{Layers: packet.Ethernet | packet.IPv4 | packet.TCP, EthSrc: c.mac, Src: c.src, Dst: c.dst}
		if out, ours := r.ActionsFor(c.at, &h); ours != c.ours || (len(out) > 0) != (c.outs > 0) {
			t.Errorf("%s: %v, %v", c.what, out, ours)
		}
	}
}

type counting struct{ n atomic.Int64 }

func (*counting) Name() string { return "other" }

func (c *counting) HandlePacketIn(*network.PacketIn) network.Verdict {
	c.n.Add(1)
	return network.Stop
}

// On a switch with tables a service's packets are sent up before the guard stage, and the service
// does not see packets that have a device's address and come from elsewhere.
func TestNobodyIsAskedAboutForgedAddresses(t *testing.T) {
	sw := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, Tables: 3})
	n, err := network.New(network.Config{Listen: []string{"127.0.0.1:0"}, DisableForwarding: true, DiscoveryInterval: 20 * time.Millisecond, DiscoverySettle: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := n.Owner(Name, network.OwnerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := n.Owner("other", network.OwnerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	settings := testSettings(t)
	settings.Borders = []Border{{Name: "up", At: ref(1, 9)}}
	s, err := New(Options{Network: n, Rules: owner, Log: slog.New(slog.DiscardHandler), Store: newStore(t), Bus: event.NewBus(1, 64), Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	var asked counting
	n.AddHandler(rule.ChainHandover, s)
	n.AddHandler(rule.ChainSOS, &asked)
	n.Subscribe(s.NetworkChanged)
	other.EverySwitch(t.Context(), "ask", func(d openflow.DatapathID) network.Program {
		return network.Program{Rules: []network.Rule{{
			Switch: d, Stage: network.StageSelect, Offset: rule.SelectConnection,
			Match:   openflow.MustMatch(openflow.EthType(packet.TypeIPv4), openflow.IPProto(packet.ProtoTCP), openflow.TCPDst(80)),
			Actions: []openflow.Action{openflow.OutputController(wholePacket)},
		}}}
	})
	background(t, n.Run, s.Run, func(ctx context.Context) error { return sw.Dial(ctx, n.Addr()[0]) })
	r := rig{Service: s, t: t}
	r.eventually("edge ports", func() bool { return n.IsEdge(ref(1, 1)) && n.IsEdge(ref(1, 2)) })
	r.eventually("the service to be ready", func() bool { return s.api.status().Ready })
	r.eventually("the rules for devices", func() bool { return len(owner.Rules(keySpoof+"/"+openflow.DatapathID(1).String())) > 0 })
	send := func(src string) {
		t.Helper()
		frame := packet.AppendTCP(nil, packet.Frame{Dst: mac2, Src: mac1}, packet.TCPSegment{
			Src: netip.AddrPortFrom(netip.MustParseAddr(src), 4000), Dst: netip.MustParseAddrPort("192.0.2.8:80"), Flags: packet.SYN,
		})
		if _, err := sw.Receive(1, frame); err != nil {
			t.Fatal(err)
		}
	}
	send("192.0.2.7")
	r.eventually("the service to be asked", func() bool { return asked.n.Load() == 1 })
	send(s.settings.Pools["campus"].First.String())
	send("192.0.2.9")
	r.eventually("the service to be asked again", func() bool { return asked.n.Load() > 1 })
	if got := asked.n.Load(); got != 2 {
		t.Errorf("the service was asked %d times, want 2", got)
	}
}
