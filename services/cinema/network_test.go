package cinema

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/store/memstore"
)

// The switches form a line 1-2-3: ports 1 and 2 are links, port 3 is a gateway's.
const gatewayPort = 3

// wired is a controller's network and service, with switches that forward frames to each other.
type wired struct {
	t        testing.TB
	store    *memstore.Store
	switches [3]*fake.Switch
	studio   *fakeIngress
	halls    [2]*fakeEgress // at switches 2 and 3

	mu      sync.Mutex
	arrived []string // at gateways

	net     *network.Network
	service *Service
}

func newWired(t testing.TB) *wired {
	w := &wired{t: t, store: memstore.New(), studio: newStudio(t, "studio", studioAddr)}
	for i, addr := range []netip.Addr{eastAddr, westAddr} {
		w.halls[i] = newGateway[gatewayapi.ViewerEvent, gatewayapi.Viewer](t, []string{"east", "west"}[i], addr)
	}
	for i := range w.switches {
		w.switches[i] = fake.NewSwitch(fake.Options{DPID: openflow.DatapathID(i + 1), Ports: 3, Tables: 3 * (i % 2), OnOutput: func(port uint32, frame []byte) {
			switch {
			case port == 1 && i > 0:
				_, _ = w.switches[i-1].Receive(2, frame)
			case port == 2 && i < 2:
				_, _ = w.switches[i+1].Receive(1, frame)
			case port == gatewayPort:
				w.arrive(frame)
			}
		}})
	}
	return w
}

// arrive records the datagrams of channels that arrive at a gateway.
func (w *wired) arrive(frame []byte) {
	if h, err := packet.Parse(frame); err == nil && h.Has(packet.UDP) && h.SrcPort > 20000 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.arrived = append(w.arrived, fmt.Sprintf("%d to %v", h.SrcPort, h.Destination()))
	}
}

// datagram sends a datagram of a channel, and returns where it arrives.
func (w *wired) datagram(channel uint16) []string {
	frame := packet.AppendUDP(nil, packet.Frame{Src: host(studioAddr, 1).MAC, Dst: openflow.MAC{2, 0, 0xc6, 0x12, 0, 1}}, packet.UDPDatagram{
		Src: netip.AddrPortFrom(studioAddr, gatewayapi.SourcePort(channel)), Dst: netip.AddrPortFrom(DefaultMedia, gatewayapi.MediaPort), Payload: []byte("picture"),
	})
	w.mu.Lock()
	w.arrived = nil
	w.mu.Unlock()
	if _, err := w.switches[0].Receive(gatewayPort, frame); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.arrived)
	return w.arrived
}

// start runs a controller's network and service until stop is called.
func (w *wired) start(generation uint16) (stop func()) {
	n, err := network.New(network.Config{
		Listen: []string{"127.0.0.1:0"}, Generation: generation, DiscoveryInterval: 100 * time.Millisecond, DiscoverySettle: 50 * time.Millisecond,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	owner, err := n.Owner(Name, network.OwnerOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.net = n
	w.service = New(Options{
		Network: n, Rules: owner, Store: w.store, Log: slog.New(slog.DiscardHandler), Settle: 20 * time.Second,
		Configured: map[string]Channel{"a": {Name: "a", Number: 1, BitRate: 2e6, Source: "test:"}, "b": {Name: "b", Number: 2, BitRate: 2e6, Source: "test:"}},
	})
	n.Subscribe(w.service.NetworkChanged)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	run := func(f func(context.Context) error) {
		running.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				w.t.Error(err)
			}
		})
	}
	run(n.Run)
	run(w.service.Run)
	for _, s := range w.switches {
		run(func(ctx context.Context) error { return s.Dial(ctx, n.Addr()[0]) })
	}
	for i, addr := range []netip.Addr{studioAddr, eastAddr, westAddr} {
		running.Go(func() { w.announce(ctx, i, addr) })
	}
	return sync.OnceFunc(func() { cancel(); running.Wait() })
}

// announce sends ARP requests of a gateway periodically until ctx ends.
func (w *wired) announce(ctx context.Context, at int, addr netip.Addr) {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			_, _ = w.switches[at].Receive(gatewayPort, packet.AppendARPRequest(nil, host(addr, 1).MAC, addr, addr, 0)) // the switch may be disconnected
		}
	}
}

func (w *wired) eventually(what string, f func() bool) {
	w.t.Helper()
	(&harness{t: w.t}).eventually(what, f)
}

func (w *wired) groupMods() (sum int) {
	for _, s := range w.switches {
		sum += s.Count(openflow.TypeGroupMod)
	}
	return sum
}

// register adds the gateways, and waits until they are located and the switches have connected.
func (w *wired) register() {
	w.t.Helper()
	<-w.service.Loaded()
	for kind, all := range map[string]map[string][2]any{
		"ingress": {"studio": {w.studio.url, studioAddr}}, "egress": {"east": {w.halls[0].url, eastAddr}, "west": {w.halls[1].url, westAddr}},
	} {
		for name, x := range all {
			r, _ := agents.Parse(control.AgentSpec{Name: name, URL: x[0].(string), Addrs: []string{x[1].(netip.Addr).String()}})
			add := w.service.egress.Add
			if kind == "ingress" {
				add = w.service.sources.registry.Add
			}
			if err := add(w.t.Context(), r); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.eventually("gateways are placed, and switches joined", func() bool {
		return w.service.missing() == "" && len(w.net.Topology().Links) == 4
	})
}

// TestInNetwork checks, with a real ledger and network, that datagrams of a channel arrive at
// its viewers, also while the controller is away, and that the next controller changes nothing.
// A change of one viewer is one message for a group at one switch.
func TestInNetwork(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	stop := w.start(1)
	defer func() { stop() }()
	w.register()
	want := func(hall, n int, channels ...string) {
		t.Helper()
		h := w.halls[hall]
		tells(h, id(n), uint16(6000+n), channels...)
		_, err := w.service.changeViewer(t.Context(), &gatewayapi.Wanted{Gateway: h.name, Viewer: id(n), Port: uint16(6000 + n), Channels: channels})
		if err != nil {
			t.Fatalf("viewer %d: %v", n, err)
		}
	}
	expect := func(when string, all ...string) {
		t.Helper()
		if got := w.datagram(1); !slices.Equal(got, all) {
			t.Errorf("%s: arrives at %v, want %v", when, got, all)
		}
	}
	expect("before anybody watches")
	want(0, 1, "a")
	want(0, 2, "a")
	want(1, 3, "a")
	expect("three watch", "20001 to 10.0.0.2:6001", "20001 to 10.0.0.2:6002", "20001 to 10.0.0.3:6003")
	for _, v := range w.service.viewerInfos(t.Context(), w.service.viewers.list()) {
		if v.Delivered != 1 {
			t.Errorf("to viewer %s at %s %d packets were delivered", v.ID, v.Gateway, v.Delivered)
		}
	}
	before := w.groupMods()
	want(0, 4, "a")
	if n := w.groupMods() - before; n != 1 {
		t.Errorf("one viewer more took %d group modifications", n)
	}
	want(0, 1, "b", "a")
	want(0, 1, "b")
	all := []string{"20001 to 10.0.0.2:6002", "20001 to 10.0.0.2:6004", "20001 to 10.0.0.3:6003"}
	expect("one has changed", all...)
	if got := w.datagram(2); !slices.Equal(got, []string{"20002 to 10.0.0.2:6001"}) {
		t.Errorf("b arrives at %v", got)
	}
	w.eventually("the trees are stored", func() bool { x, err := w.store.List(t.Context(), treePrefix); return err == nil && len(x) == 2 })
	stop()
	expect("while no controller is there", all...)
	before = w.groupMods()
	stop = w.start(2)
	w.eventually("the next one is ready", func() bool {
		select {
		case <-w.service.ready:
			return len(w.service.viewers.list()) == 4
		default:
			return false
		}
	})
	want(1, 5, "b")
	expect("with the next one", all...)
	if n := w.groupMods() - before; n != 1 {
		t.Errorf("a restart and one viewer more took %d group modifications", n)
	}
	for n := 1; n <= 5; n++ {
		want(map[int]int{3: 1, 5: 1}[n], n)
	}
	w.eventually("no group is left", func() bool {
		return !slices.ContainsFunc(w.switches[:], func(s *fake.Switch) bool { return len(s.Table().Groups()) > 0 })
	})
	expect("when nobody watches")
}
