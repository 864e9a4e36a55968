package handover

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ref(s, p int) network.PortRef {
	return network.PortRef{Switch: openflow.DatapathID(s), Port: uint32(p)}
}

// cable returns the two directions of a link.
func cable(a, b network.PortRef) []network.Link {
	return []network.Link{{From: a, To: b, Latency: time.Millisecond}, {From: b, To: a, Latency: time.Millisecond}}
}

// The network of the tests. Port 9 of switch 1 is the uplink, hosts are at the
// ports from 1 on of the edge switches 3, 4 and 5.
//
//	    1 ---------.
//	    |           \
//	    2            5
//	  /   \         (1)
//	 3     4
//	(1)   (1)
var (
	uplink              = ref(1, 9)
	otherUplink         = ref(4, 9) // by its role, not a border port
	edge3, edge4, edge5 = ref(3, 1), ref(4, 1), ref(5, 1)
	treeLinks           = slices.Concat(cable(ref(1, 11), ref(2, 11)), cable(ref(2, 12), ref(3, 12)), cable(ref(2, 13), ref(4, 13)), cable(ref(1, 14), ref(5, 14)))
)

// world replaces the network with the platform's fakes: switches whose tables hold the applied
// rules.
type world struct {
	*servicetest.Network
	*servicetest.Ledger
	mu      sync.Mutex
	version uint64
	tables  map[openflow.DatapathID]*fake.FlowTable
	writes  map[openflow.DatapathID]int
	// refuse makes Apply fail.
	refuse func(key string) error
	// written is called between writing and deleting.
	written func(key string)
	// mixed holds the keys of devices for which one change both wrote and deleted rules.
	mixed []string
	sent  chan frame
}

type frame struct {
	at   network.PortRef
	data []byte
}

func newWorld(links []network.Link) *world {
	w := &world{
		Network: servicetest.NewNetwork(nil), Ledger: servicetest.NewLedger(),
		tables: map[openflow.DatapathID]*fake.FlowTable{}, writes: map[openflow.DatapathID]int{}, sent: make(chan frame, 4096),
	}
	w.connect([]openflow.DatapathID{1, 2, 3, 4, 5}, links)
	return w
}

func (w *world) connect(switches []openflow.DatapathID, links []network.Link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	w.SetTopology(topology.New(w.version, switches, links))
	for _, d := range switches {
		if w.tables[d] == nil {
			w.tables[d] = fake.NewFlowTable(nil)
		}
	}
}

func (w *world) PortRole(at network.PortRef) network.PortRole {
	if at == otherUplink {
		return network.PortUplink
	}
	return network.PortAccess
}

func (w *world) ControlLatency(openflow.DatapathID) time.Duration { return 100 * time.Microsecond }

func (w *world) Send(at network.PortRef, data []byte) error {
	if !w.Topology().Has(at.Switch) {
		return network.ErrSwitchDown
	}
	select {
	case w.sent <- frame{at, slices.Clone(data)}:
	default:
	}
	return nil
}

func (w *world) Apply(ctx context.Context, key string, p rule.Program, o rule.ApplyOptions) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil {
		if err := w.refuse(key); err != nil {
			return err
		}
	}
	top := w.Topology()
	for _, r := range p.Rules {
		if !top.Has(r.Switch) && !o.AllowDown {
			return fmt.Errorf("switch %v: %w", r.Switch, network.ErrSwitchDown)
		}
	}
	wrote := false
	before := map[entryKey]network.Rule{}
	for _, r := range w.Program(key).Rules {
		before[entryKey{r.Switch, r.Key()}] = r
	}
	for _, r := range p.Rules {
		k := entryKey{r.Switch, r.Key()}
		old, had := before[k]
		delete(before, k)
		if had && slices.Equal(old.Actions, r.Actions) {
			continue
		}
		w.writes[r.Switch]++
		wrote = true
		m := openflow.NewFlowMod(openflow.FlowAdd, 0, r.Priority(), r.Match, openflow.ApplyActions(r.Actions...))
		if _, err := w.tables[r.Switch].Flow(m); err != nil {
			return err
		}
	}
	if o.Written != nil {
		w.mu.Unlock()
		o.Written()
		w.mu.Lock()
	}
	if w.written != nil {
		w.written(key)
	}
	if wrote && len(before) > 0 && strings.HasPrefix(key, "device/") {
		w.mixed = append(w.mixed, key)
	}
	for k, r := range before {
		w.writes[k.sw]++
		if _, err := w.tables[k.sw].Flow(openflow.NewFlowMod(openflow.FlowDeleteStrict, 0, r.Priority(), r.Match)); err != nil {
			return err
		}
	}
	p.Rules = slices.Clone(p.Rules)
	return w.Ledger.Apply(ctx, key, p, o)
}

func (w *world) Remove(ctx context.Context, key string) error {
	return w.Apply(ctx, key, rule.Program{}, rule.ApplyOptions{AllowDown: true})
}

func (w *world) EverySwitch(ctx context.Context, key string, program func(openflow.DatapathID) rule.Program) map[openflow.DatapathID]error {
	refused := map[openflow.DatapathID]error{}
	for _, d := range w.Topology().Switches {
		if err := w.Apply(ctx, fmt.Sprintf("%s/%v", key, d), program(d), rule.ApplyOptions{AllowDown: true}); err != nil {
			refused[d] = err
		}
	}
	return refused
}

// arrival is a copy of a packet that has left the network.
type arrival struct {
	At       network.PortRef
	Src, Dst openflow.MAC
}

// deliver follows a packet until all its copies have left the network or were dropped.
func (w *world) deliver(t *testing.T, at network.PortRef, p fake.Packet) []arrival {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []arrival
	var follow func(at network.PortRef, p fake.Packet, hops int)
	follow = func(at network.PortRef, p fake.Packet, hops int) {
		if hops > 16 {
			t.Fatalf("a packet goes round in circles at %v", at)
		}
		for _, o := range w.tables[at.Switch].Send(at.Port, p).Outputs {
			port := o.Port
			switch port {
			case openflow.PortInPort:
				port = at.Port
			case openflow.PortController:
				continue
			}
			from := network.PortRef{Switch: at.Switch, Port: port}
			if l, ok := w.Topology().LinkFrom(from); ok {
				follow(l.To, o.Packet.With(openflow.InPort(l.To.Port)), hops+1)
				continue
			}
			src, _ := o.Packet.Get(openflow.FieldEthSrc)
			dst, _ := o.Packet.Get(openflow.FieldEthDst)
			out = append(out, arrival{from, openflow.MAC(src.Value[:6]), openflow.MAC(dst.Value[:6])})
		}
	}
	follow(at, p, 0)
	return out
}

// kept returns the ledger keys of devices' rules.
func (w *world) kept() []string {
	var out []string
	for _, key := range w.Keys() {
		if id, is := strings.CutPrefix(key, "device/"); is {
			out = append(out, id)
		}
	}
	return out
}

// touched returns the switches that were written to since the last call.
func (w *world) touched() []openflow.DatapathID {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []openflow.DatapathID
	for d := range w.writes {
		out = append(out, d)
	}
	clear(w.writes)
	slices.Sort(out)
	return out
}

// rig is a service that runs in a world.
type rig struct {
	*Service
	t    *testing.T
	w    *world
	st   store.Store
	stop func()
}

// start starts a service in a world, on a store. before is called before the service runs.
func start(t *testing.T, w *world, st store.Store, change func(*Settings), before ...func(*Service)) *rig {
	t.Helper()
	settings := testSettings(t)
	if change != nil {
		change(&settings)
	}
	s, err := New(Options{
		Network: w, Rules: w, Store: st, Bus: event.NewBus(1, 4096), Settings: settings,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range before {
		f(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	r := &rig{Service: s, t: t, w: w, st: st}
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	r.eventually("the service to be ready", func() bool { return s.api.status().Ready })
	return r
}

func newStore(t *testing.T) store.Store {
	st := memstore.New()
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func newRig(t *testing.T, change func(*Settings)) *rig {
	t.Helper()
	return start(t, newWorld(treeLinks), newStore(t), change)
}

// eventually waits for a condition.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(answerTime)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain for %s", what)
		}
		<-tick.C
	}
}

func mac(s string) openflow.MAC {
	m, err := openflow.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}

var (
	mac1, mac2, mac3 = mac("02:00:00:00:00:01"), mac("02:00:00:00:00:02"), mac("02:00:00:00:00:03")
	routerMAC        = mac("02:aa:00:00:00:01")
	server           = netip.MustParseAddr("198.51.100.7")
)

// alter changes a declaration.
func alter[T any](all map[string]T, name string, f func(*T)) {
	x := all[name]
	f(&x)
	all[name] = x
}

// testSettings returns settings with one pool, and classes of both policies.
func testSettings(t *testing.T) Settings {
	t.Helper()
	settings, faults := Specs{
		Classes: map[string]ClassSpec{
			"default":  {Trigger: "open"},
			"seamless": {Policy: "seamless", Trigger: "open", Overlap: "1s"},
			"signed":   {Trigger: "signed"},
			"desk":     {Trigger: "ports", Ports: []string{edge3.String(), edge4.String()}},
		},
		Pools: map[string]PoolSpec{"campus": {Prefix: "10.8.0.0/16", Gateway: "10.8.0.1", GatewayMAC: routerMAC.String(), First: "10.8.1.0", Last: "10.8.20.255", LeaseTime: "1h"}},
		Devices: map[string]DeviceSpec{
			"car":   {MACs: []string{mac1.String(), mac2.String()}},
			"phone": {MACs: []string{mac3.String(), "02:00:00:00:00:04"}, Class: "seamless"},
		},
	}.Parse()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	settings.Borders = []Border{{Name: "up", At: uplink}}
	settings.Settle = 2 * time.Second
	settings.RulesTimeout = time.Second
	return settings
}
