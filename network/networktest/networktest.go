package networktest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// Timeout is the longest time that these tests wait for a condition.
const Timeout = time.Minute

// Start runs a network on a loopback port until the test ends or stop is called. The
// functions in prepare are called before it runs.
func Start(t testing.TB, c network.Config, prepare ...func(*network.Network)) (n *network.Network, stop func()) {
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
	return n, Background(t, n.Run)
}

// Background runs f in a goroutine until the test ends or stop is called.
func Background(t testing.TB, f func(context.Context) error) (stop func()) {
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

// Connect runs a fake switch against the network and waits until its session is up.
func Connect(t testing.TB, n *network.Network, s *fake.Switch, dpid openflow.DatapathID) (stop func()) {
	t.Helper()
	stop = Background(t, func(ctx context.Context) error { return s.Dial(ctx, n.Addr()[0]) })
	Up(t, n, dpid)
	return stop
}

// Up waits until a switch is connected and its handshake has completed.
func Up(t testing.TB, n *network.Network, dpid openflow.DatapathID) {
	t.Helper()
	Eventually(t, "switch "+dpid.String()+" to be up", func() bool {
		_, ok := n.Switch(dpid)
		return ok
	})
}

// Down waits until a switch is no longer connected.
func Down(t testing.TB, n *network.Network, dpid openflow.DatapathID) {
	t.Helper()
	Eventually(t, "switch "+dpid.String()+" to be down", func() bool {
		_, ok := n.Switch(dpid)
		return !ok
	})
}

// Edges waits until ports 1 to count of the switch are edge ports, and default forwarding's
// rules for them are confirmed.
func Edges(t testing.TB, n *network.Network, dpid openflow.DatapathID, count int) {
	t.Helper()
	Eventually(t, "edge ports", func() bool {
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

// HostMAC returns the MAC address of host i.
func HostMAC(i int) openflow.MAC { return openflow.MAC{0x02, 0, 0, 0, byte(i >> 8), byte(i)} }

// Frame returns a TCP segment with SYN from host i to host j.
func Frame(i, j int) []byte {
	src, dst := HostMAC(i), HostMAC(j)
	return packet.AppendTCP(nil, packet.Frame{Src: src, Dst: dst}, packet.TCPSegment{
		Src: HostAddr(i), Dst: HostAddr(j), Flags: packet.SYN, Window: 1000,
	})
}

// HostAddr returns the address of host i and the port that it sends from.
func HostAddr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), uint16(1000+i))
}

// Owner registers an owner of rules. It must be called before the network runs.
func Owner(t testing.TB, n *network.Network, name string, o network.OwnerOptions) *network.Owner {
	t.Helper()
	w, err := n.Owner(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Apply applies a program of rules and waits until the switches have confirmed it.
func Apply(t testing.TB, o *network.Owner, key string, p network.Program, opts network.ApplyOptions) {
	t.Helper()
	if err := o.Apply(t.Context(), key, p, opts); err != nil {
		t.Fatal(err)
	}
}

// Program returns a program of the given rules.
func Program(rules ...network.Rule) network.Program { return network.Program{Rules: rules} }

// TCPTo returns a rule of StageRewrite that sends TCP segments to the given TCP port out of
// switch port out.
func TCPTo(dpid openflow.DatapathID, port uint16, out uint32) network.Rule {
	return network.Rule{
		Switch: dpid, Stage: network.StageRewrite,
		Match:   openflow.MustMatch(openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(port)),
		Actions: []openflow.Action{openflow.Output(out)},
	}
}

// ServiceRules returns the output port for each TCP port, from a fake switch's entries of
// StageRewrite.
func ServiceRules(s *fake.Switch) map[uint16]uint32 {
	out := map[uint16]uint32{}
	for _, e := range s.Table().Entries() {
		if o, ok := e.Match.Get(openflow.FieldTCPDst); ok && e.Priority >= network.StageRewrite.Base() {
			out[uint16(o.Uint())] = e.Instructions[0].Actions[0].Arg
		}
	}
	return out
}

// WantRules fails the test if ServiceRules of a switch differs from want.
func WantRules(t testing.TB, s *fake.Switch, want map[uint16]uint32) {
	t.Helper()
	got := ServiceRules(s)
	if len(got) != len(want) {
		t.Fatalf("the switch has rules %v, want %v", got, want)
	}
	for p, out := range want {
		if got[p] != out {
			t.Fatalf("the switch has rules %v, want %v", got, want)
		}
	}
}

// Diagnose examines the links of the network and returns the report.
func Diagnose(t testing.TB, n *network.Network, mtu int) diagnosis.Report {
	t.Helper()
	began, err := n.Doctor().Diagnose(mtu)
	if err != nil {
		t.Fatal(err)
	}
	var r diagnosis.Report
	Eventually(t, "the examination to end", func() bool {
		r, _ = n.Doctor().Diagnosis()
		return !r.Ended.IsZero()
	})
	if r.Number != began.Number || r.MTU != mtu {
		t.Errorf("another report: %+v, want that of %+v", r, began)
	}
	return r
}

// Faults returns the findings of a report as "fault from[-to]", separated by commas.
func Faults(r diagnosis.Report) string {
	var s []string
	for _, f := range r.Findings {
		at := fmt.Sprintf("%s %d/%d", f.Fault, f.From.Switch, f.From.Port)
		if f.To != (network.PortRef{}) {
			at += fmt.Sprintf("-%d/%d", f.To.Switch, f.To.Port)
		}
		s = append(s, at)
		if f.Found == "" || f.Remedy == "" {
			s = append(s, "without words or remedy")
		}
	}
	return strings.Join(s, ", ")
}

// Eventually waits until ok returns true, at most for Timeout.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(Timeout)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %v in vain for: %s", Timeout, what)
		}
	}
}

// Pair connects two linked switches. The test fails if the session of one of them or the link
// ends. Pair returns the number of frames that the link has carried.
func Pair(t testing.TB, n *network.Network, a, b openflow.DatapathID) (carried *atomic.Int64) {
	t.Helper()
	left, right, carried := linked(a, b)
	Connect(t, n, left, a)
	Connect(t, n, right, b)
	Eventually(t, "the link", func() bool { return len(n.Topology().Links) == 2 })
	n.Subscribe(func(e network.Event) {
		if t.Context().Err() != nil {
			return
		}
		switch {
		case e.Kind == network.SwitchDown && (e.Switch == a || e.Switch == b):
			t.Errorf("the session with switch %v ended", e.Switch)
		case e.Kind == network.LinkDown && (e.Link.From.Switch == a || e.Link.From.Switch == b):
			t.Errorf("the link from %v ended", e.Link.From)
		}
	})
	return carried
}

// linked returns two switches whose second ports are joined by a cable, and the number of frames
// that the cable has carried.
func linked(a, b openflow.DatapathID) (left, right *fake.Switch, carried *atomic.Int64) {
	carried = new(atomic.Int64)
	cable := func(to **fake.Switch) func(uint32, []byte) {
		return func(port uint32, frame []byte) {
			if port == 2 {
				carried.Add(1)
				_, _ = (*to).Receive(2, frame) // it may not be connected yet
			}
		}
	}
	left = fake.NewSwitch(fake.Options{DPID: a, Ports: 2, OnOutput: cable(&right)})
	right = fake.NewSwitch(fake.Options{DPID: b, Ports: 2, OnOutput: cable(&left)})
	return left, right, carried
}

// Healthy connects a switch. The test fails if its session ends. The returned function fails the
// test if the switch does not confirm a change of its rules.
func Healthy(t testing.TB, n *network.Network, o *network.Owner) (check func()) {
	t.Helper()
	s := fake.NewSwitch(fake.Options{DPID: 0xaa, Ports: 2})
	Connect(t, n, s, 0xaa)
	n.Subscribe(func(e network.Event) {
		if e.Kind == network.SwitchDown && e.Switch == 0xaa && t.Context().Err() == nil {
			t.Error("the healthy switch's session ended")
		}
	})
	out := uint32(0)
	return func() {
		t.Helper()
		out++
		Apply(t, o, "healthy", Program(TCPTo(0xaa, 80, out)), network.ApplyOptions{})
		WantRules(t, s, map[uint16]uint32{80: out})
	}
}
