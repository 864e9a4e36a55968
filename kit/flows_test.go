package kit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
)

const (
	relayPort = 80 // the TCP port of the flows
	relayRule = 420
	mostHeld  = 16 // packets of one flow
)

// relayed is a flow of the test's service.
type relayed struct {
	From   network.PortRef
	Number int64 // of the placement that has decided; zero before
}

// relay is a service that forwards packets for a TCP port from where they enter to port 1 of switch
// 2, and the answers back. Default forwarding would forward them to port 4 of switch 2.
type relay struct {
	*kit.Flows[relayed]
	*servicetest.Controller
	t       *testing.T
	now     atomic.Int64
	most    int
	numbers atomic.Int64
	arrived chan arrival
	// putting, if set before a start, is called before something is stored.
	putting func()

	mu    sync.Mutex
	gates map[string]*gate // Place waits for them, by flow
	looks map[string]int   // how often Place was called
}

// gate blocks Place until it is opened.
type gate struct {
	entered, opened chan struct{}
	enter           sync.Once
	err             error // what Place returns then
}

// arrival is a segment that has left the network.
type arrival struct {
	at   network.PortRef
	from netip.AddrPort
	seq  uint32
}

func at(d openflow.DatapathID, port uint32) network.PortRef {
	return network.PortRef{Switch: d, Port: port}
}

// putStore calls a function before it stores something.
type putStore struct {
	store.Store
	putting func()
}

func (s *putStore) Put(ctx context.Context, key string, value []byte) error {
	s.putting()
	return s.Store.Put(ctx, key, value)
}

// startRelay starts a relay on three switches in a triangle.
func startRelay(t *testing.T, most int) *relay {
	r := &relay{t: t, most: most, arrived: make(chan arrival, 256), gates: map[string]*gate{}, looks: map[string]int{}}
	r.now.Store(1000)
	r.Controller = servicetest.Start(t, servicetest.Fabric{
		Switches: 3, Ports: 4, Links: [][2]network.PortRef{{at(1, 2), at(2, 2)}, {at(1, 3), at(3, 2)}, {at(3, 3), at(2, 3)}},
		Clock: func() time.Time { return time.Unix(r.now.Load(), 0) },
		OnOutput: func(at network.PortRef, frame []byte) {
			if h, err := packet.Parse(frame); err == nil && h.Has(packet.TCP) {
				r.arrived <- arrival{at, h.Source(), h.Seq}
			}
		},
	}, r.build)
	eventually(t, "the host to be known", func() bool {
		r.receive(at(2, 4), packet.AppendARPRequest(nil, openflow.MAC{2, 0, 0, 0, 0, 2}, netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.9"), 0))
		_, known := r.Network.HostByIP(netip.MustParseAddr("10.0.0.2"))
		return known
	})
	return r
}

func (r *relay) build(n *network.Network, st store.Store) (func(context.Context) error, error) {
	owner, err := kit.NewOwner(n, "relay")
	if err != nil {
		return nil, err
	}
	if r.putting != nil {
		st = &putStore{st, r.putting}
	}
	ask := owner.Part("ask")
	flows := kit.NewFlows(kit.FlowOptions[relayed]{
		Name: "relay", Network: n, Rules: owner.Part("flows"), Store: st, Prefix: "relay/", Log: slog.New(slog.DiscardHandler),
		Identify: identify, MaxPerPort: r.most, MaxFlows: 8 * r.most,
		Place: func(ctx context.Context, name string, v relayed) (relayed, network.Program, error) {
			return r.place(ctx, n, name, v)
		},
	})
	r.Flows = flows
	n.AddHandler(rule.ChainForwarding-1, flows)
	n.Subscribe(func(network.Event) { flows.Wake() })
	return func(ctx context.Context) error {
		ask.EverySwitch(ctx, "ask", func(d openflow.DatapathID) (p network.Program) {
			for _, port := range []openflow.OXM{openflow.TCPDst(relayPort), openflow.TCPSrc(relayPort)} {
				p.Rules = append(p.Rules, network.Rule{
					Switch: d, Stage: network.StageSelect, Offset: relayRule - 10, Leased: true,
					Match:   openflow.MustMatch(openflow.EthType(packet.TypeIPv4), openflow.IPProto(packet.ProtoTCP), port),
					Actions: []openflow.Action{openflow.Output(openflow.PortController)},
				})
			}
			return p
		})
		ask.Ready()
		return flows.Run(ctx)
	}, nil
}

// identify names a flow, in both directions, by its client.
func identify(p *network.PacketIn) (name string, first relayed, ok bool) {
	h := &p.Headers
	if !h.Has(packet.TCP) {
		return "", first, false
	}
	client := h.Source()
	if h.SrcPort == relayPort {
		client = h.Destination()
	}
	return client.String(), relayed{From: at(p.Switch.DPID(), p.InPort)}, true
}

func (r *relay) place(ctx context.Context, n *network.Network, name string, v relayed) (relayed, network.Program, error) {
	r.mu.Lock()
	g := r.gates[name]
	r.looks[name]++
	r.mu.Unlock()
	if g != nil {
		g.enter.Do(func() { close(g.entered) })
		select {
		case <-g.opened:
		case <-ctx.Done():
			return v, network.Program{}, ctx.Err()
		}
		if g.err != nil {
			return v, network.Program{}, g.err
		}
	}
	path, ok := n.Topology().Path(v.From, at(2, 1), network.MetricHops)
	if !ok {
		return v, network.Program{}, network.ErrNoPath
	}
	if v.Number == 0 {
		v.Number = r.numbers.Add(1)
	}
	client := netip.MustParseAddrPort(name)
	tcp := openflow.MustMatch(openflow.EthType(packet.TypeIPv4), openflow.IPProto(packet.ProtoTCP))
	there, err := tcp.With(openflow.IPSrc(client.Addr()), openflow.TCPSrc(client.Port()), openflow.TCPDst(relayPort))
	back, backErr := tcp.With(openflow.IPDst(client.Addr()), openflow.TCPDst(client.Port()), openflow.TCPSrc(relayPort))
	if err = errors.Join(err, backErr); err != nil {
		return v, network.Program{}, err
	}
	along := kit.Along{Hops: path.Hops, Stage: network.StageSelect, Offset: relayRule, Match: there, Idle: time.Minute}
	rules, err := along.Rules()
	along.Hops, along.Match = kit.Reversed(path.Hops), back
	reverse, backErr := along.Rules()
	return v, network.Program{Rules: append(rules, reverse...)}, errors.Join(err, backErr)
}

// shut makes Place block for a flow until open is called, and then return open's argument, an error
// or nil. open waits until Place has been called.
func (r *relay) shut(flow string) (open func(error)) {
	g := &gate{entered: make(chan struct{}), opened: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gates[flow] = g
	return func(err error) {
		r.t.Helper()
		select {
		case <-g.entered:
		case <-time.After(time.Minute):
			r.t.Fatal("the flow is not placed")
		}
		r.mu.Lock()
		delete(r.gates, flow)
		r.mu.Unlock()
		g.err = err
		close(g.opened)
	}
}

// routine waits until a flow has been checked by routine.
func (r *relay) routine(flow string) {
	r.t.Helper()
	looks := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.looks[flow]
	}
	before := looks()
	eventually(r.t, "two looks by routine", func() bool { r.Wake(); return looks() >= before+2 })
}

func (r *relay) receive(at network.PortRef, frame []byte) {
	r.t.Helper()
	if _, err := r.Switch(at.Switch).Receive(at.Port, frame); err != nil {
		r.t.Fatal(err)
	}
}

// send sends segments of a flow, numbered from first to last, into a port.
func (r *relay) send(at network.PortRef, client string, first, last uint32) {
	r.t.Helper()
	from := netip.MustParseAddrPort(client)
	for seq := first; seq <= last; seq++ {
		r.receive(at, packet.AppendTCP(nil, packet.Frame{Src: openflow.MAC{2, 0, 0, 0, 0, 1}, Dst: openflow.MAC{2, 0, 0, 0, 0, 2}},
			packet.TCPSegment{Src: from, Dst: netip.MustParseAddrPort("10.0.0.2:80"), Flags: packet.ACK, Seq: seq}))
	}
}

// arrives checks that the segments of a flow with these numbers leave next by a port, in their
// order.
func (r *relay) arrives(to network.PortRef, client string, first, last uint32) {
	r.t.Helper()
	for seq := first; seq <= last; seq++ {
		want := arrival{to, netip.MustParseAddrPort(client), seq}
		select {
		case got := <-r.arrived:
			if got != want {
				r.t.Fatalf("%+v has left, want %+v", got, want)
			}
		case <-time.After(time.Minute):
			r.t.Fatalf("waited in vain for %+v; flows: %v", want, r.Values())
		}
	}
}

// rules returns the rules of flows at a switch.
func (r *relay) rules(d openflow.DatapathID) (out []fake.Entry) {
	for _, e := range r.Switch(d).Table().Entries() {
		if e.Priority == network.StageSelect.Base()+relayRule {
			out = append(out, e)
		}
	}
	return out
}

func (r *relay) has(what string, rules ...int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("rules %v: %s", rules, what), func() bool {
		return slices.Equal(rules, []int{len(r.rules(1)), len(r.rules(2)), len(r.rules(3))})
	})
}

// The clients of two flows.
const one, two = "10.0.0.1:1001", "10.0.0.1:1002"

// TestFlowsHold checks that the packets of a flow are held while it is placed, and leave in their
// order by its rules. A packet that the switch sends to the controller by an older decision takes
// the same way. Another flow does not wait.
func TestFlowsHold(t *testing.T) {
	r := startRelay(t, 64)
	open := r.shut(one)
	r.send(at(1, 1), one, 1, 5)
	r.send(at(1, 1), two, 1, 1)
	r.arrives(at(2, 1), two, 1, 1)
	open(nil)
	r.arrives(at(2, 1), one, 1, 5)
	r.has("two flows, two directions", 4, 4, 0)
	frame := packet.AppendTCP(nil, packet.Frame{Src: openflow.MAC{2, 0, 0, 0, 0, 1}, Dst: openflow.MAC{2, 0, 0, 0, 0, 2}},
		packet.TCPSegment{Src: netip.MustParseAddrPort(one), Dst: netip.MustParseAddrPort("10.0.0.2:80"), Flags: packet.ACK, Seq: 6})
	late, err := (&openflow.PacketIn{BufferID: openflow.NoBuffer, TotalLen: uint16(len(frame)), InPort: 1, Data: frame}).AppendTo(nil, 0)
	must(t, err)
	_, err = r.Switch(1).Write(late)
	must(t, err)
	r.arrives(at(2, 1), one, 6, 6)
}

// TestFlowsEnd checks that a flow ends when its rules have been idle, that routine does not write
// them again, and that the next packet starts another flow.
func TestFlowsEnd(t *testing.T) {
	r := startRelay(t, 64)
	r.send(at(1, 1), one, 1, 1)
	r.arrives(at(2, 1), one, 1, 1)
	r.has("placed", 2, 2, 0)
	r.now.Add(60)
	must(t, r.Switch(1).Expire())
	must(t, r.Switch(2).Expire())
	r.has("idle", 0, 0, 0)
	eventually(t, "the flow's end", func() bool { return len(r.Values()) == 0 })
	left, err := r.Store.List(t.Context(), "relay/")
	must(t, err)
	if len(left) > 0 {
		t.Errorf("%d flows are still stored", len(left))
	}
	r.send(at(1, 1), two, 1, 1)
	r.arrives(at(2, 1), two, 1, 1)
	r.routine(two)
	r.has("only the other flow", 2, 2, 0)
	r.send(at(1, 1), one, 2, 2)
	r.arrives(at(2, 1), one, 2, 2)
	if v := r.Values()[one]; v.Number != 3 {
		t.Errorf("the flow is number %d, want another one, 3", v.Number)
	}
}

// TestFlowsHalfIdle checks that a flow goes on if one direction has been idle, and that the rules
// of that direction are written again only when a packet needs them.
func TestFlowsHalfIdle(t *testing.T) {
	r := startRelay(t, 64)
	r.send(at(1, 1), one, 1, 1)
	r.arrives(at(2, 1), one, 1, 1)
	r.now.Add(40)
	r.send(at(1, 1), one, 2, 2)
	r.arrives(at(2, 1), one, 2, 2)
	r.now.Add(40)
	must(t, r.Switch(1).Expire())
	must(t, r.Switch(2).Expire())
	r.has("the way back is idle", 2, 1, 0)
	r.routine(one)
	r.has("after looks by routine", 2, 1, 0)
	r.receive(at(2, 1), packet.AppendTCP(nil, packet.Frame{Src: openflow.MAC{2, 0, 0, 0, 0, 2}, Dst: openflow.MAC{2, 0, 0, 0, 0, 1}},
		packet.TCPSegment{Src: netip.MustParseAddrPort("10.0.0.2:80"), Dst: netip.MustParseAddrPort(one), Flags: packet.ACK, Seq: 9}))
	r.arrives(at(1, 1), "10.0.0.2:80", 9, 9)
	r.has("all again", 2, 2, 0)
	if v := r.Values()[one]; v.Number != 1 {
		t.Errorf("the flow is number %d, want the same, 1", v.Number)
	}
}

// TestFlowsAreStoredFirst checks that a flow's packets wait until its record is stored. Otherwise a
// controller that restarts in between would place the flow again.
func TestFlowsAreStoredFirst(t *testing.T) {
	r := startRelay(t, 8)
	put, open := make(chan struct{}, 1), make(chan struct{})
	r.putting = func() {
		select {
		case put <- struct{}{}:
		default:
		}
		<-open
	}
	r.Restart()
	m := kit.NewMetrics("relay")
	r.Metrics(m)
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	r.send(at(1, 1), "10.0.0.1:1", 1, 1)
	<-put
	all, err := registry.Gather()
	must(t, err)
	held := -1.0
	for _, family := range all {
		if family.GetName() == "sluice_relay_flow_packets_held" {
			held = family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if held != 1 {
		t.Errorf("%v packets are held while the record is stored, want 1", held)
	}
	close(open)
	r.arrives(at(2, 1), "10.0.0.1:1", 1, 1)
}

// TestFlowsRestart checks that a restart keeps the rules of flows and the decisions about them,
// also while the flows cannot be placed, and that they end as before.
func TestFlowsRestart(t *testing.T) {
	r := startRelay(t, 64)
	r.send(at(1, 1), one, 1, 1)
	r.arrives(at(2, 1), one, 1, 1)
	eventually(t, "the flow to be stored", func() bool {
		all, err := r.Store.List(t.Context(), "relay/")
		return err == nil && len(all) == 1
	})
	before := r.rules(1)
	open := r.shut(one)
	r.Restart()
	r.send(at(1, 4), two, 1, 1)
	r.arrives(at(2, 1), two, 1, 1)
	r.has("before the flow of before can be placed", 4, 4, 0)
	open(nil)
	r.routine(one)
	r.send(at(1, 1), one, 2, 2)
	r.arrives(at(2, 1), one, 2, 2)
	if v := r.Values()[one]; v.Number != 1 {
		t.Errorf("the flow is number %d, want the same, 1", v.Number)
	}
	if after := r.rules(1); !slices.ContainsFunc(after, func(e fake.Entry) bool { return e.Cookie == before[0].Cookie }) {
		t.Errorf("its rule %#x has been written anew", before[0].Cookie)
	}
	r.now.Add(60)
	must(t, r.Switch(1).Expire())
	must(t, r.Switch(2).Expire())
	r.has("idle", 0, 0, 0)
	eventually(t, "the flows' end", func() bool { return len(r.Values()) == 0 })
}

// TestFlowsRerouted checks that flows move to another path when a link is lost, and that rules of
// ended flows are not written again.
func TestFlowsRerouted(t *testing.T) {
	r := startRelay(t, 64)
	r.send(at(1, 1), one, 1, 1)
	r.arrives(at(2, 1), one, 1, 1)
	r.has("direct", 2, 2, 0)
	must(t, r.Switch(1).SetPort(2, false))
	r.has("by way of the third switch", 2, 2, 2)
	r.send(at(1, 1), one, 2, 2)
	r.arrives(at(2, 1), one, 2, 2)
	if v := r.Values()[one]; v.Number != 1 {
		t.Errorf("the flow is number %d, want the same, 1", v.Number)
	}
}

// TestFlowsBounds checks the bounds of flows for a port, and of held packets for a flow. Packets
// beyond them are forwarded as without the service.
func TestFlowsBounds(t *testing.T) {
	r := startRelay(t, 2)
	for i := range uint32(3) {
		client := fmt.Sprintf("10.0.0.1:%d", 2000+i)
		r.send(at(1, 1), client, 1, 1)
		to := at(2, 1)
		if i == 2 {
			to = at(2, 4)
		}
		r.arrives(to, client, 1, 1)
	}
	open := r.shut(two)
	r.send(at(1, 4), two, 1, mostHeld+2) // another port
	r.arrives(at(2, 4), two, mostHeld+1, mostHeld+2)
	open(nil)
	r.arrives(at(2, 1), two, 1, mostHeld)
	if n := len(r.Values()); n != 3 {
		t.Errorf("%d flows, want 3", n)
	}
}

// TestFlowsNotPlaced checks that packets of a flow that cannot be placed, or that ends, are
// forwarded as without the service.
func TestFlowsNotPlaced(t *testing.T) {
	r := startRelay(t, 64)
	for i, err := range []error{errors.New("no"), kit.ErrFlowEnded} {
		seq := uint32(i + 1)
		open := r.shut(one)
		r.send(at(1, 1), one, seq, seq)
		open(err)
		r.arrives(at(2, 4), one, seq, seq)
		eventually(t, "the flow to be forgotten", func() bool { return len(r.Values()) == 0 })
	}
	r.send(at(1, 1), one, 3, 3)
	r.arrives(at(2, 1), one, 3, 3)
	r.has("placed", 2, 2, 0)
	open := r.shut(one)
	r.Wake()
	open(kit.ErrFlowEnded)
	r.has("ended", 0, 0, 0)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}
