package critical

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/qos/reserve"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mbit = 1_000_000

// These are the links of the test's network: a short path 1-2-4 and a longer one 1-3-5-4.
// Port 10*a+b of switch a leads to switch b; hosts are at ports 1 to 9.
var cables = [][2]int{{1, 2}, {2, 4}, {1, 3}, {3, 5}, {5, 4}}

func port(a, b int) network.PortRef {
	return network.PortRef{Switch: openflow.DatapathID(a), Port: uint32(10*a + b)}
}

func hostAt(sw, n int) network.PortRef {
	return network.PortRef{Switch: openflow.DatapathID(sw), Port: uint32(n)}
}

// fakeNet is a network whose links the test changes.
type fakeNet struct {
	*servicetest.Network
	mu       sync.Mutex
	capacity uint64
	used     map[network.PortRef]uint64
	dead     map[[2]int]bool
	extra    [][2]int // cables beside the usual ones
	narrow   map[[2]int]uint64
	anchors  map[netip.Addr]network.Anchor
	moving   network.Moving
	unknown  bool // what links carry is not measured yet

	now    time.Time
	sent   map[network.PortRef]uint64              // bytes, by port
	meters map[reserve.Counter]openflow.MeterStats // by number, at their switches
}

func (n *fakeNet) Topology() *network.Topology {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []network.Link
	for _, c := range slices.Concat(cables, n.extra) {
		if n.dead[c] {
			continue
		}
		a, b := port(c[0], c[1]), port(c[1], c[0])
		rate := n.rate(a)
		out = append(out, network.Link{From: a, To: b, Capacity: rate, Used: n.used[a]}, network.Link{From: b, To: a, Capacity: rate, Used: n.used[b]})
	}
	return topology.New(1, []openflow.DatapathID{1, 2, 3, 4, 5}, out)
}

// rate is the capacity of the cable at a port. The lock is held.
func (n *fakeNet) rate(at network.PortRef) uint64 {
	for c, rate := range n.narrow {
		if at == port(c[0], c[1]) || at == port(c[1], c[0]) {
			return rate
		}
	}
	return n.capacity
}

func (n *fakeNet) Anchored(a netip.Addr) (network.Anchor, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x, ok := n.anchors[a]
	return x, ok
}

func (n *fakeNet) Moving() network.Moving { n.mu.Lock(); defer n.mu.Unlock(); return n.moving }

func (n *fakeNet) IsEdge(at network.PortRef) bool { return at.Port < 10 }

func (n *fakeNet) CanMatch(d openflow.DatapathID, _ openflow.Field) (can, known bool) {
	return d != 5, true
}

// ResolveHost finds host 7 of a switch, which is never heard before.
func (n *fakeNet) ResolveHost(_ context.Context, a netip.Addr) (network.Host, error) {
	for i := 1; i <= 5; i++ {
		if a == addr(i, 7) {
			return network.Host{MAC: mac(i, 7), At: hostAt(i, 7)}, nil
		}
	}
	return network.Host{}, network.ErrUnknownHost
}

func (n *fakeNet) Use(at network.PortRef) reserve.Use {
	n.mu.Lock()
	defer n.mu.Unlock()
	return reserve.Use{Capacity: n.rate(at), Used: n.used[at], Unknown: n.unknown}
}

// PortCounters tells what ports have sent. Readings take no time.
func (n *fakeNet) PortCounters(_ context.Context, d openflow.DatapathID) (all []stats.Sample, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range slices.Concat(cables, n.extra) {
		for _, at := range []network.PortRef{port(c[0], c[1]), port(c[1], c[0])} {
			if at.Switch == d {
				all = append(all, n.sample(at))
			}
		}
	}
	for host := 1; host < 10; host++ {
		all = append(all, n.sample(hostAt(int(d), host)))
	}
	return all, nil
}

// sample is the reading of a port. The lock is held.
func (n *fakeNet) sample(at network.PortRef) stats.Sample {
	return stats.Sample{Port: at, Sent: n.now, Received: n.now, Counters: stats.Counters{TxBytes: n.sent[at]}}
}

// MeterStats tells what meters have counted.
func (n *fakeNet) MeterStats(_ context.Context, d openflow.DatapathID) (all []openflow.MeterStats, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c, m := range n.meters {
		if c.Switch == d {
			all = append(all, m)
		}
	}
	return all, nil
}

func (n *fakeNet) clock() time.Time { n.mu.Lock(); defer n.mu.Unlock(); return n.now }

// meter has packets of a rate pass a meter for a second, which lets so much of them through. The
// lock is held.
func (n *fakeNet) meter(d openflow.DatapathID, id uint32, rate, passes uint64) {
	c := reserve.Counter{Switch: d, Meter: id}
	m := n.meters[c]
	if m.Meter == 0 {
		m.Meter, m.Bands = id, make([]openflow.Counter, 1)
	}
	m.Bands = slices.Clone(m.Bands)
	m.Bytes += rate / 8
	m.Bands[0].Bytes += (rate - min(passes, rate)) / 8
	n.meters[c] = m
}

func (n *fakeNet) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// fakeHeld is a first packet; done tells what became of it.
type fakeHeld struct{ done chan string }

func (h fakeHeld) Release() error { h.done <- "released"; return nil }
func (h fakeHeld) Forward() error { h.done <- "forwarded"; return nil }

// world is a service on a fake network.
type world struct {
	*Service
	t     testing.TB
	net   *fakeNet
	rules *servicetest.Ledger
	store store.Store
	fixed map[string]*Definition
	stop  func()
}

// newWorld starts a service whose links have 15 Mbit/s, with flows to TCP port 5001
// that require 10 Mbit/s.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{
		t: t, store: memstore.New(),
		net: &fakeNet{
			Network: servicetest.NewNetwork(nil), capacity: 15 * mbit, used: map[network.PortRef]uint64{}, dead: map[[2]int]bool{},
			now: time.Now(), sent: map[network.PortRef]uint64{}, meters: map[reserve.Counter]openflow.MeterStats{},
		},
		rules: servicetest.NewLedger(),
	}
	for i := 1; i <= 5; i++ {
		for host := range 3 {
			w.net.SetHost(network.Host{MAC: mac(i, host+1), IPs: []netip.Addr{addr(i, host+1)}, At: hostAt(i, host+1)})
		}
	}
	w.start()
	d, faults := Spec{Name: "bulk", Rate: 10 * mbit, Match: match.Flow{TCPDst: "5001"}}.Parse()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if err := w.define(d); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) define(d *Definition) error { return w.Definitions.Add(w.t.Context(), d.Name, d) }

// start runs a service on what network and store hold.
func (w *world) start() {
	w.t.Helper()
	log, book := slog.New(slog.DiscardHandler), reserve.New(w.net.Use)
	book.SetClock(w.net.clock)
	s := New(Options{
		Network: w.net, Rules: w.rules, Store: w.store, Book: book, Guard: guard.New(guard.Options{Book: book, Rules: w.rules, Log: log}), Log: log, Publish: func(string, any) {},
		Interval: time.Hour, Configured: w.fixed,
	})
	w.Service = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(w.stop)
	<-s.Ready()
}

func mac(sw, n int) openflow.MAC { return openflow.MAC{2, 0, 0, 0, byte(sw), byte(n)} }

func addr(sw, n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(sw), byte(n)}) }

// headers is a segment from a host to another host's port 5001.
func headers(from, to [2]int, source uint16) *packet.Headers {
	return &packet.Headers{
		Layers: packet.Ethernet | packet.IPv4 | packet.TCP, EthType: packet.TypeIPv4, Proto: packet.ProtoTCP,
		EthSrc: mac(from[0], from[1]), EthDst: mac(to[0], to[1]), Src: addr(from[0], from[1]), Dst: addr(to[0], to[1]), SrcPort: source, DstPort: 5001,
	}
}

// offer sends a flow's first packet and tells how to wait for what becomes of it.
func (w *world) offer(from, to [2]int, source uint16) (network.Verdict, func() string) {
	held := fakeHeld{make(chan string, 1)}
	v := w.handlePacket(hostAt(from[0], from[1]), headers(from, to, source), func() (Held, error) { return held, nil })
	return v, func() string {
		select {
		case what := <-held.done:
			return what
		case <-time.After(30 * time.Second):
			return "nothing happened"
		}
	}
}

// place sends a first packet and returns the flow.
func (w *world) placed(from, to [2]int, source uint16) Record {
	w.t.Helper()
	v, wait := w.offer(from, to, source)
	if what := wait(); v != network.Stop || what != "released" {
		w.t.Fatalf("verdict %v, packet %s", v, what)
	}
	return w.of(from, to, source)
}

func (w *world) of(from, to [2]int, source uint16) Record {
	w.t.Helper()
	h, _ := match.HeaderOf(headers(from, to, source))
	f := w.flows.find(h)
	if f == nil {
		return Record{State: "none"}
	}
	return f.record()
}

// through is a record's path as the numbers of its switches.
func through(r Record) string {
	s := ""
	for _, h := range r.Path {
		s += fmt.Sprint(uint64(h.Switch))
	}
	return s
}

// carry has flows send for a second, by the names of their rules, each so many bit/s. Ports send
// what the test says that links carry, with that traffic in it.
func (w *world) carry(rates map[string]uint64) {
	w.rules.Carry(rates)
	held := map[network.PortRef]uint64{}
	w.net.change(func() {
		w.net.now = w.net.now.Add(time.Second)
		for at, rate := range w.net.used {
			w.net.sent[at] += rate / 8
		}
	})
	for _, f := range w.flows.placed() {
		now, rate := f.status(), rates[f.key()]
		if now.State == StateAccepted {
			if !f.Unmetered[forward] {
				w.net.change(func() { w.net.meter(f.counters(now.Hops)[forward].Switch, f.meterID(forward), rate, f.Rate) })
			}
			continue
		}
		for _, hop := range now.Hops {
			held[network.PortRef{Switch: hop.Switch, Port: hop.Out}] += rate
		}
	}
	for at, rate := range held {
		if id := w.Guard.Meter(at); id != 0 {
			w.net.change(func() { w.net.meter(at.Switch, id, rate, 1000*uint64(w.Guard.Kbit(at))) })
		}
	}
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			w.t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}
