package subflows

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/reserve"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	mbit = 1_000_000
	mark = 11
)

// These are the links of the test's network: three paths from 1 to 5, through 2, 3 and 4.
// Port 10*a+b of switch a leads to switch b; hosts are at ports 1 to 9.
var cables = [][2]int{{1, 2}, {2, 5}, {1, 3}, {3, 5}, {1, 4}, {4, 5}}

func port(a, b int) network.PortRef {
	return network.PortRef{Switch: openflow.DatapathID(a), Port: uint32(10*a + b)}
}

func hostAt(sw, n int) network.PortRef {
	return network.PortRef{Switch: openflow.DatapathID(sw), Port: uint32(n)}
}

func mac(sw, n int) openflow.MAC { return openflow.MAC{2, 0, 0, 0, byte(sw), byte(n)} }

func addr(sw, n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(sw), byte(n)}) }

// world is a service on a fake network, whose links have 10 Mbit/s each.
type world struct {
	*Service
	t     testing.TB
	net   *servicetest.Network
	rules *servicetest.Ledger
	store store.Store
	on    bool
	stop  func()

	mu   sync.Mutex
	used map[network.PortRef]uint64
	dead map[[2]int]bool
	// sent holds what ports send, and carried what subflows carry, by their keys. A switch updates
	// the counters of subflows once in each lag.
	sent    map[network.PortRef]*flow
	carried map[string]*flow
	lag     time.Duration
	reads   int // number of readings of ports' counters
}

// flow is traffic whose rate changes now and then. It counts bytes.
type flow struct {
	bytes, rate uint64 // rate is in bits per second
	since       time.Time
}

// at returns the number of bytes at a time.
func (f *flow) at(now time.Time) uint64 {
	return f.bytes + uint64(float64(f.rate)/8*max(now.Sub(f.since), 0).Seconds())
}

func (f *flow) set(rate uint64, now time.Time) {
	*f = flow{f.at(now), rate, now}
}

// send makes a port send at a rate from now on, and carry a subflow.
func (w *world) send(a, b int, rate uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := port(a, b)
	if w.sent[at] == nil {
		w.sent[at] = &flow{since: time.Now()}
	}
	w.sent[at].set(rate, time.Now())
}

func (w *world) carry(f *subflow, rate uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.carried[f.key()] == nil {
		w.carried[f.key()] = &flow{since: time.Now()}
	}
	w.carried[f.key()].set(rate, time.Now())
}

// countedNet is the network of a world, with the counters of its ports.
type countedNet struct {
	*servicetest.Network
	w *world
}

func (n countedNet) PortCounters(_ context.Context, d openflow.DatapathID) (all []stats.Sample, err error) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.reads++
	now := time.Now()
	for _, c := range cables {
		for _, at := range []network.PortRef{port(c[0], c[1]), port(c[1], c[0])} {
			if at.Switch != d {
				continue
			}
			x := stats.Sample{Port: at, Sent: now, Received: now}
			if f := n.w.sent[at]; f != nil {
				x.TxBytes = f.at(now)
			}
			all = append(all, x)
		}
	}
	return all, nil
}

// countedLedger is the ledger of a world, with the counters of subflows that carry something.
type countedLedger struct {
	*servicetest.Ledger
	w *world
}

func (l countedLedger) Rules(key string) []network.InstalledRule {
	rules := l.Ledger.Rules(key)
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	f := l.w.carried[key]
	if f == nil {
		return rules
	}
	now := time.Now()
	for i := range rules {
		if rules[i].CountersAt = now; rules[i].NotifyRemoved {
			rules[i].Bytes = f.at(now.Truncate(max(l.w.lag, 1)))
		} else {
			rules[i].Bytes = 0
		}
	}
	return rules
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{
		t: t, on: true, store: memstore.New(), rules: servicetest.NewLedger(), net: servicetest.NewNetwork(nil),
		used: map[network.PortRef]uint64{}, dead: map[[2]int]bool{}, sent: map[network.PortRef]*flow{}, carried: map[string]*flow{},
	}
	w.join()
	for _, sw := range []int{1, 5} {
		for n := range 3 {
			w.net.SetHost(network.Host{MAC: mac(sw, n+1), IPs: []netip.Addr{addr(sw, n+1)}, At: hostAt(sw, n+1)})
		}
	}
	w.start()
	return w
}

// join makes the topology of the cables that are whole.
func (w *world) join() {
	var links []network.Link
	w.mu.Lock()
	for _, c := range cables {
		if !w.dead[c] {
			a, b := port(c[0], c[1]), port(c[1], c[0])
			links = append(links, network.Link{From: a, To: b, Capacity: 10 * mbit, Used: w.used[a]}, network.Link{From: b, To: a, Capacity: 10 * mbit, Used: w.used[b]})
		}
	}
	w.mu.Unlock()
	w.net.SetTopology(topology.New(1, []openflow.DatapathID{1, 2, 3, 4, 5}, links))
}

// leave takes switches out, with their cables.
func (w *world) leave(gone ...int) {
	whole := w.net.Topology()
	is := func(d openflow.DatapathID) bool { return slices.Contains(gone, int(d)) }
	links := slices.DeleteFunc(slices.Clone(whole.Links), func(l network.Link) bool { return is(l.From.Switch) || is(l.To.Switch) })
	w.net.SetTopology(topology.New(1, slices.DeleteFunc(slices.Clone(whole.Switches), is), links))
}

// cut takes a cable out; load has a cable carry something.
func (w *world) cut(a, b int) {
	w.mu.Lock()
	w.dead[[2]int{a, b}] = true
	w.mu.Unlock()
	w.join()
}

func (w *world) load(a, b int, rate uint64) {
	w.mu.Lock()
	w.used[port(a, b)] = rate
	w.mu.Unlock()
}

func (w *world) use(at network.PortRef) reserve.Use {
	w.mu.Lock()
	defer w.mu.Unlock()
	return reserve.Use{Capacity: 10 * mbit, Used: w.used[at]}
}

// start runs a service on what network and store hold.
func (w *world) start() {
	w.t.Helper()
	log, book := slog.New(slog.DiscardHandler), reserve.New(w.use)
	w.Service = New(Options{
		Settings: Settings{Enabled: w.on, DSCP: mark, Paths: 3, Most: 20, Idle: 30 * time.Second},
		Network:  countedNet{w.net, w}, Rules: countedLedger{w.rules, w}, Store: w.store, Book: book, Guard: guard.New(guard.Options{Book: book, Rules: w.rules, Log: log}), Log: log, Publish: func(string, any) {},
		Interval: time.Hour,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(w.stop)
	<-w.Ready()
}

// soon waits until something is so; is tells how it is.
func (w *world) soon(what string, so func() bool, is func() any) {
	w.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !so() {
		if time.Now().After(deadline) {
			w.t.Fatalf("not in time: %s: %+v", what, is())
		}
		pause.For(time.Millisecond, what)
	}
}

// many waits until there are so many subflows, and lists them.
func (w *world) many(want int) []Subflow {
	w.t.Helper()
	w.soon("the service to have as many subflows", func() bool { return len(w.Subflows()) == want }, func() any { return w.Subflows() })
	return w.Subflows()
}

// fakeHeld is a SYN that waits; done tells what became of it.
type fakeHeld struct{ done chan string }

func (h fakeHeld) Release() error { h.done <- "released"; return nil }
func (h fakeHeld) Output(actions []openflow.Action) error {
	h.done <- map[bool]string{true: "unmarked", false: "sent otherwise"}[slices.Equal(actions, unmarked)]
	return nil
}

// syn is a SYN with the mark, from a host to another's port 80.
func syn(from, to [2]int, source uint16) *packet.Headers {
	return &packet.Headers{
		Layers: packet.Ethernet | packet.IPv4 | packet.TCP, EthType: packet.TypeIPv4, Proto: packet.ProtoTCP, TCPFlags: packet.SYN, DSCP: mark,
		EthSrc: mac(from[0], from[1]), EthDst: mac(to[0], to[1]), Src: addr(from[0], from[1]), Dst: addr(to[0], to[1]), SrcPort: source, DstPort: 80,
	}
}

// offer sends a SYN that joins the connection of a token, and tells what became of it:
// "left" if the service did not take it.
func (w *world) offer(h *packet.Headers, token uint32) string {
	w.t.Helper()
	held := fakeHeld{make(chan string, 1)}
	from := hostAt(int(h.EthSrc[4]), int(h.EthSrc[5]))
	if w.handleSYN(from, h, packet.MPTCP{Join: true, Token: token}, func() (Held, error) { return held, nil }) != network.Stop {
		return "left"
	}
	select {
	case what := <-held.done:
		return what
	case <-time.After(30 * time.Second):
		return "nothing happened"
	}
}

// way is where a subflow goes, by its source port: the switch between 1 and 5.
func (w *world) way(source uint16) int {
	for _, f := range w.flows.all() {
		if f.Header.SrcPort == source && len(f.path()) == 3 {
			return int(f.path()[1].Switch)
		}
	}
	return 0
}
