package sos

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store/memstore"
)

func TestMain(m *testing.M) {
	reportInvalidTransition = func(err error) { panic(err) }
	goleak.VerifyTestMain(m)
}

// testTimeout bounds every wait of these tests. It is only reached when a test fails.
const testTimeout = 30 * time.Second

// bench is a service between fakes: two switches 75 ms apart, with client and agents x and x2 at
// one, and server and agent y at the other.
type bench struct {
	t        *testing.T
	net      *fakeNet
	service  *Service
	store    *memstore.Store
	x, x2, y *fakeAgent
	settle   time.Duration
	linger   time.Duration
	stop     func()
	// treatments holds what other services promise.
	treatments *network.Treatments
}

func at(d openflow.DatapathID, p uint32) network.PortRef { return network.PortRef{Switch: d, Port: p} }

func links(pairs ...[2]network.PortRef) []network.Link {
	var out []network.Link
	for _, p := range pairs {
		for _, l := range []network.Link{{From: p[0], To: p[1]}, {From: p[1], To: p[0]}} {
			l.Latency = 75 * time.Millisecond
			out = append(out, l)
		}
	}
	return out
}

func newBench(t *testing.T) *bench {
	n := newFakeNet(topology.New(1, []openflow.DatapathID{1, 2}, links([2]network.PortRef{at(1, wan), at(2, wan)})))
	x2 := netip.MustParseAddr("10.0.0.13")
	for addr, h := range map[netip.Addr]network.Host{
		hostA.Addr(): {MAC: macA, At: at(1, portA)}, hostB.Addr(): {MAC: macB, At: at(2, portB)},
		agentX.Addr(): {MAC: macX, At: at(1, portX)}, agentY.Addr(): {MAC: macY, At: at(2, portY)},
		x2: {MAC: openflow.MAC{2, 0, 0, 0, 0, 13}, At: at(1, 4)},
	} {
		h.IPs = []netip.Addr{addr}
		n.SetHost(h)
	}
	b := &bench{t: t, net: n, store: memstore.New(), settle: time.Second, linger: 20 * time.Millisecond}
	b.x, b.x2, b.y = newFakeAgent(t, n, "x"), newFakeAgent(t, n, "x2"), newFakeAgent(t, n, "y")
	b.start()
	t.Cleanup(func() { b.stop() })
	// Fake agents send their heartbeats from this process: on a busy machine they must not look
	// silent.
	if _, err := b.service.selection.setConfig(t.Context(), ConfigChange{SilentAfter: new("1m"), WarmPeers: new(0)}); err != nil {
		t.Fatal(err)
	}
	b.add("x", b.x, agentX.Addr())
	b.add("y", b.y, agentY.Addr())
	e := mustEntry(t, spec("10.0.0.0/24", "10.0.0.0/24", "80"))
	e.ID = "first"
	if err := b.service.selection.entries.Add(t.Context(), e.ID, e); err != nil {
		t.Fatal(err)
	}
	b.eventually("the agents are guarded, and that is stored", func() bool {
		guards, err := b.store.List(t.Context(), keyStrayRules)
		return err == nil && len(guards) == 2
	})
	return b
}

// start starts a service on the bench's store, as a controller does when it starts.
func (b *bench) start() {
	s, err := New(Options{
		Network: b.net, Rules: b.net, Store: b.store, Log: slog.New(slog.DiscardHandler),
		Linger: b.linger, Settle: b.settle, Dial: b.dial,
		ControlSubnets: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, Treatments: b.treatments,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.service = s
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
		b.stop = func() {}
	}
	b.eventually("the service is ready", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.running })
}

// dial connects to an agent, if its machine is on.
func (b *bench) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for _, a := range []*fakeAgent{b.x, b.x2, b.y} {
		if a.server.Listener.Addr().String() != addr {
			continue
		}
		select {
		case <-a.off:
			<-ctx.Done()
			return nil, ctx.Err()
		default:
		}
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

func (b *bench) add(name string, a *fakeAgent, addr netip.Addr) {
	b.t.Helper()
	r, faults := agents.Parse(control.AgentSpec{Name: name, URL: a.server.URL, Addrs: []string{addr.String()}})
	if len(faults) > 0 {
		b.t.Fatal(faults)
	}
	if err := b.service.agents.Add(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
	b.agentsUp()
}

func (b *bench) agentsUp() {
	b.t.Helper()
	b.eventually("agents are up and found", func() bool {
		for _, i := range b.service.agents.Infos() {
			if i.State != agents.Up || len(i.Places) == 0 || len(i.DataPorts) == 0 {
				return false
			}
		}
		return true
	})
}

// eventually polls with a deadline.
func (b *bench) eventually(what string, f func() bool) {
	b.t.Helper()
	deadline := time.After(testTimeout)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-deadline:
			b.t.Fatalf("after %v still not: %s", testTimeout, what)
		case <-tick.C:
		}
	}
}

// firstISN is the client's initial sequence number.
const firstISN = 1000

// syn passes the client's first packet to the service.
func (b *bench) syn(from netip.AddrPort) (network.Verdict, *fakeHeld) {
	return b.synAt(from, at(1, portA))
}

// synAt passes a first packet from a port to the service.
func (b *bench) synAt(from netip.AddrPort, in network.PortRef) (network.Verdict, *fakeHeld) {
	h := packet.Headers{
		Layers: packet.Ethernet | packet.IPv4 | packet.TCP, EthSrc: macA, EthDst: macB,
		Src: from.Addr(), Dst: hostB.Addr(), SrcPort: from.Port(), DstPort: hostB.Port(), TCPFlags: packet.SYN, Seq: firstISN,
	}
	p := &fakePunted{held: &fakeHeld{net: b.net, fate: make(chan string, 1)}}
	verdict := b.service.segment(in, &h, p)
	if !p.taken {
		return verdict, nil
	}
	return verdict, p.held
}

// fate waits until a held packet is released or dropped, and returns which.
func (b *bench) fate(h *fakeHeld) string {
	b.t.Helper()
	if h == nil {
		b.t.Fatal("the packet was not held")
	}
	select {
	case f := <-h.fate:
		return f
	case <-time.After(testTimeout):
		b.t.Fatalf("the packet is still held after %v", testTimeout)
		return ""
	}
}

// clean waits until nothing is left of any session.
func (b *bench) clean() {
	b.t.Helper()
	b.eventually("no rule and no session is left", func() bool {
		s := b.service
		s.mu.Lock()
		defer s.mu.Unlock()
		loads := 0
		for _, a := range s.agents.List() {
			loads += a.State().Sessions
		}
		return len(b.net.kept()) == 0 && len(s.sessions.byFlow)+len(s.sessions.byID)+s.sessions.setups+len(s.sessions.perClient)+loads+len(s.resets.all) == 0
	})
}

func (b *bench) past() []Record { return b.service.records("past") }
