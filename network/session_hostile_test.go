package network_test

import (
	"context"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

func TestSwitchOfTooManyPortsIsRefused(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{MaxPorts: 100, DiscoveryTimeout: 20 * time.Second}) // the test is not about links
	networktest.Pair(t, n, 0xa, 0xb)
	refused := make(chan network.Event, 1)
	n.Subscribe(func(e network.Event) {
		if e.Kind == network.SwitchRefused {
			refused <- e
		}
	})
	networktest.Connect(t, n, fake.NewSwitch(fake.Options{DPID: 1, Ports: 100}), 1)
	if err := fake.NewSwitch(fake.Options{DPID: 2, Ports: 101}).Dial(t.Context(), n.Addr()[0]); err != nil {
		t.Error(err)
	}
	e := <-refused
	if e.Switch != 2 || !strings.Contains(e.Reason, "more than 100 ports") || !strings.Contains(e.Reason, "openflow.max_ports") {
		t.Errorf("told of %+v", e)
	}
	if _, is := n.Switch(2); is {
		t.Error("the switch is up")
	}
}

// TestManyPortsHarmNoLink checks that a switch with as many ports as 16 bits can number, if that
// is allowed, may add and remove them without affecting a link, or the sessions of its switches.
func TestManyPortsHarmNoLink(t *testing.T) {
	t.Parallel()
	n, _ := networktest.Start(t, network.Config{MaxPorts: 65535, DiscoveryInterval: time.Second, DiscoverySettle: 200 * time.Millisecond, DiscoveryTimeout: 20 * time.Second})
	carried := networktest.Pair(t, n, 0xa, 0xb)
	var ports atomic.Int64
	n.Subscribe(func(e network.Event) {
		if e.Kind == network.PortUp && e.Switch == 1 {
			ports.Add(1)
		}
	})
	stop := networktest.Connect(t, n, fake.NewSwitch(fake.Options{DPID: 1, Ports: 65000}), 1)
	networktest.Eventually(t, "its ports", func() bool { return ports.Load() == 65000 })
	before := carried.Load()
	networktest.Eventually(t, "more probes of the link", func() bool { return carried.Load() >= before+8 })
	stop()
	networktest.Down(t, n, 1)
	if got := len(n.Topology().Links); got != 2 {
		t.Errorf("%d links, want 2", got)
	}
}

// TestSwitchThatComesAndGoesWaits checks that a switch which disconnects at once has to wait
// before it connects again, because each connection costs all other switches something, and that
// others do not wait for it.
func TestSwitchThatComesAndGoesWaits(t *testing.T) {
	t.Parallel()
	const free, again = 5, time.Second // sessions at once, and the interval of further ones
	n, _ := networktest.Start(t, network.Config{})
	var leave atomic.Pointer[context.CancelFunc]
	n.Subscribe(func(e network.Event) {
		if e.Kind == network.SwitchUp && e.Switch == 1 {
			(*leave.Load())()
		}
	})
	began := time.Now()
	for range free + 1 {
		ctx, cancel := context.WithCancel(t.Context())
		leave.Store(&cancel)
		if err := fake.NewSwitch(fake.Options{DPID: 1, Ports: 1}).Dial(ctx, n.Addr()[0]); err != nil {
			t.Fatal(err)
		}
		if ctx.Err() == nil {
			t.Fatal("a session ended that should not have")
		}
		networktest.Down(t, n, 1)
	}
	if took := time.Since(began); took < again {
		t.Errorf("%d sessions within %v", free+1, took)
	}
	networktest.Connect(t, n, fake.NewSwitch(fake.Options{DPID: 2, Ports: 1}), 2)
}

// TestCountersOfPortsThatAreNotThereAreNotKept checks that counters of ports that a switch does
// not have are ignored.
func TestCountersOfPortsThatAreNotThereAreNotKept(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{StatsInterval: 50 * time.Millisecond})
	var reading atomic.Uint64
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 1, PortStats: func() []openflow.PortStats {
		read := openflow.Duration{Sec: uint32(reading.Add(1))}
		return []openflow.PortStats{{Port: 7, Duration: read}, {Port: 1, Duration: read}}
	}})
	networktest.Connect(t, n, s, 1)
	networktest.Eventually(t, "a rate of its port", func() bool {
		_, is := n.Traffic().Port(network.PortRef{Switch: 1, Port: 1})
		return is
	})
	if _, is := n.Traffic().Port(network.PortRef{Switch: 1, Port: 7}); is {
		t.Error("a rate is kept of a port that the switch does not have")
	}
}

// end is a port of one of several switches.
type end struct {
	at   int
	port uint32
}

// ring connects three switches in a ring by their ports 1 and 2, with a host at port 3 of each,
// and a fourth switch to the first of them.
func ring(t *testing.T, n *network.Network, last fake.Options) []*fake.Switch {
	t.Helper()
	return wire(t, n, 4, map[end]end{{1, 2}: {2, 1}, {2, 2}: {3, 1}, {3, 2}: {1, 1}, {1, 4}: {4, 1}}, last)
}

// wire connects switches, numbered from 1, by cables and to the controller. The last one has its
// own options.
func wire(t *testing.T, n *network.Network, count int, cables map[end]end, last fake.Options) []*fake.Switch {
	t.Helper()
	s := make([]*fake.Switch, count+1)
	for a, b := range maps.Clone(cables) {
		cables[b] = a
	}
	for i := 1; i <= count; i++ {
		var o fake.Options
		if i == count {
			o = last
		}
		o.DPID, o.Ports = openflow.DatapathID(i), 4
		o.OnOutput = func(port uint32, frame []byte) {
			if to, ok := cables[end{i, port}]; ok && s[to.at] != nil {
				_, _ = s[to.at].Receive(to.port, frame) // it may not be connected yet
			}
		}
		s[i] = fake.NewSwitch(o)
	}
	for i := 1; i <= count; i++ {
		networktest.Connect(t, n, s[i], openflow.DatapathID(i))
	}
	return s
}

// TestWithheldBarriersHoldUpNoOther checks that a switch which answers, but does not confirm
// changes, does not delay the broadcast tree of the others.
func TestWithheldBarriersHoldUpNoOther(t *testing.T) {
	t.Parallel()
	var withhold, withheld atomic.Bool
	n, _ := networktest.Start(t, network.Config{RequestTimeout: time.Minute, HandshakeTimeout: time.Minute})
	s := ring(t, n, fake.Options{Instead: func(_ uint32, m openflow.Message) ([]byte, bool) {
		if !withhold.Load() || m.MsgType() != openflow.TypeBarrierRequest {
			return nil, false
		}
		withheld.Store(true)
		return nil, true
	}})
	networktest.Eventually(t, "all links", func() bool { return len(n.Topology().Links) == 8 })
	broadcast := packet.AppendTCP(nil, packet.Frame{Src: networktest.HostMAC(1), Dst: packet.Broadcast}, packet.TCPSegment{Src: networktest.HostAddr(1), Dst: networktest.HostAddr(2)})
	floods := func(i int, port uint32) bool {
		r := s[i].Table().Send(port, fake.PacketOf(broadcast))
		return len(r.Outputs) > 0 && r.Outputs[0].Port != openflow.PortController
	}
	// off are the ends of the ring's links that are not on the tree.
	off := func() (ends [][2]int) {
		for i := 1; i <= 3; i++ {
			for port := 1; port <= 2; port++ {
				if !floods(i, uint32(port)) {
					ends = append(ends, [2]int{i, port})
				}
			}
		}
		return ends
	}
	networktest.Eventually(t, "the tree", func() bool { return len(off()) == 2 && floods(1, 4) })
	spare := off()
	cut := uint32(1) // of the switch that has both its links on the tree
	both := 6 - spare[0][0] - spare[1][0]
	withhold.Store(true)
	if err := s[4].SetPort(3, false); err != nil { // which changes its rules
		t.Fatal(err)
	}
	networktest.Eventually(t, "a barrier to be withheld", withheld.Load)
	if err := s[both].SetPort(cut, false); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "the tree over the spare link", func() bool {
		return floods(spare[0][0], uint32(spare[0][1])) && floods(spare[1][0], uint32(spare[1][1]))
	})
}

// TestSwitchThatWithholdsBarriersIsEnded checks that the session of a switch is ended that answers
// but does not confirm what it was sent.
func TestSwitchThatWithholdsBarriersIsEnded(t *testing.T) {
	t.Parallel()
	var o *network.Owner
	var withhold atomic.Bool
	n, _ := networktest.Start(t, network.Config{RequestTimeout: time.Second}, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, Instead: func(_ uint32, m openflow.Message) ([]byte, bool) {
		return nil, withhold.Load() && m.MsgType() == openflow.TypeBarrierRequest
	}})
	networktest.Connect(t, n, s, 1)
	withhold.Store(true)
	if err := o.Apply(t.Context(), "k", networktest.Program(networktest.TCPTo(1, 80, 1)), network.ApplyOptions{}); err == nil {
		t.Error("a change was confirmed that was not")
	}
	networktest.Down(t, n, 1)
}

// TestRuleOnItsWayIsNotWrittenForEachPacket checks that the rule of a flow is not written again
// for each packet that reaches the controller before the rule takes effect, so that a sender of
// many packets does not fill the output queue.
func TestRuleOnItsWayIsNotWrittenForEachPacket(t *testing.T) {
	const packets, again = 2000, 100 * time.Millisecond
	n, _ := networktest.Start(t, network.Config{})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2})
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 2)
	in := func(b []byte, from, to int) []byte {
		f := networktest.Frame(from, to)
		b, err := (&openflow.PacketIn{BufferID: openflow.NoBuffer, TotalLen: uint16(len(f)), InPort: uint32(from), Data: f}).AppendTo(b, 0)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	before, began := s.FlowMods(), time.Now()
	for i := range packets { // there and back: as if the switch had neither rule
		if _, err := s.Write(in(nil, 1+i%2, 2-i%2)); err != nil {
			t.Fatal(err)
		}
	}
	networktest.Eventually(t, "all packets to be sent on", func() bool { return s.Count(openflow.TypePacketOut) >= packets })
	atMost := 2 * (2 + int(time.Since(began)/again)) // both rules, at first and each interval
	if got := s.FlowMods() - before; got < 2 || got > atMost {
		t.Errorf("%d flow mods, want 2 to %d", got, atMost)
	}
}
