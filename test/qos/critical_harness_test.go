package qos

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/qos/reserve"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

const (
	criticalToken = "critical"
	testTimeout   = 30 * time.Second
	trunk         = 15_000_000
)

// square returns two paths between two switches with three hosts each, s1-s2-s4 and
// s1-s3-s4, whose links are declared as 15 Mbit/s.
func square() lab.Topology {
	t := lab.Topology{Name: "qsquare"}
	for _, s := range []string{"s1", "s2", "s3", "s4"} {
		t.Switches = append(t.Switches, lab.Switch{Name: s})
	}
	for _, l := range [][2]string{{"s1", "s2"}, {"s2", "s4"}, {"s1", "s3"}, {"s3", "s4"}, {"a1", "s1"}, {"a2", "s1"}, {"a3", "s1"}, {"b1", "s4"}, {"b2", "s4"}, {"b3", "s4"}} {
		if !strings.HasPrefix(l[0], "s") {
			t.Hosts = append(t.Hosts, lab.Host{Name: l[0]})
		}
		t.Links = append(t.Links, lab.Link{A: lab.End{Node: l[0]}, B: lab.End{Node: l[1]}})
	}
	return t
}

// criticalWorld is a lab with a controller that can be stopped and started.
type criticalWorld struct {
	t     *testing.T // the subtest that runs, if any
	whole *testing.T
	lab   *lab.Lab
	store store.Store
	runs  uint16
	// capacity is the declared capacity of the links between switches.
	capacity uint64
	// links is how many links are up when it starts.
	links int

	net  *network.Network
	rest *client.Client
	stop func()
}

func newCriticalWorld(t *testing.T) *criticalWorld {
	t.Helper()
	w := &criticalWorld{t: t, whole: t, lab: lab.New(t, square()), store: memstore.New(), capacity: trunk, links: 8}
	w.start()
	t.Cleanup(func() {
		if t.Failed() {
			w.describe()
		}
		w.stop()
	})
	for _, h := range []string{"a1", "a2", "a3", "b1", "b2", "b3"} {
		w.greet(h)
	}
	return w
}

// run runs a subtest that shares the network. When the subtest ends, its definitions are
// withdrawn, and nothing may be left of their flows.
func (w *criticalWorld) run(name string, f func(t *testing.T)) {
	outer := w.t
	outer.Run(name, func(t *testing.T) {
		w.t = t
		defer func() { w.t = outer }()
		defer w.withdraw()
		f(t)
	})
}

// withdraw withdraws all definitions, and waits until nothing is left of their flows.
func (w *criticalWorld) withdraw() {
	w.t.Helper()
	var all []critical.DefinitionInfo
	if err := w.rest.Get(context.Background(), "/api/v1/qos/critical", &all); err != nil {
		w.t.Error(err)
	}
	for _, d := range all {
		if err := w.rest.Do(context.Background(), http.MethodDelete, "/api/v1/qos/critical/"+d.Name, nil, nil); err != nil {
			w.t.Error(err)
		}
	}
	if w.t.Failed() {
		return
	}
	w.eventually("no rule or meter is left", func() bool {
		rules, meters := w.ours()
		return len(rules)+meters+len(w.flows())+len(w.reservations()) == 0
	})
}

// oneWay takes down the path through s3.
func (w *criticalWorld) oneWay() {
	w.t.Helper()
	if err := w.lab.SetLink(w.t.Context(), "s1-s3", false); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("one way is left", func() bool { return len(w.net.Topology().Links) == 6 })
}

func (w *criticalWorld) describe() {
	w.t.Logf("flows: %+v\nlinks: %+v", w.flows(), w.net.Topology().Links)
	for _, s := range []string{"s1", "s2", "s3", "s4"} {
		flows, _ := w.lab.Switch(s).Ofctl(context.Background(), "dump-flows")
		meters, _ := w.lab.Switch(s).Ofctl(context.Background(), "dump-meters")
		w.t.Logf("%s\n%s%s", s, flows, meters)
	}
}

// start runs a controller, which finds what the previous one has left.
func (w *criticalWorld) start() {
	w.t.Helper()
	ln, err := w.lab.Control().Listen("tcp", w.lab.ControllerAddr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.runs++
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	capacities := map[network.PortRef]uint64{}
	for _, link := range []string{"s1-s2", "s2-s4", "s1-s3", "s3-s4"} {
		for _, end := range strings.Split(link, "-") {
			port, err := w.lab.Switch(end).Port(link)
			if err != nil {
				w.t.Fatal(err)
			}
			capacities[network.PortRef{Switch: openflow.DatapathID(w.lab.Switch(end).DPID()), Port: uint32(port)}] = w.capacity
		}
	}
	n, err := network.New(network.Config{
		Log: log, Generation: w.runs, DiscoveryInterval: 200 * time.Millisecond, DiscoverySettle: 200 * time.Millisecond, DiscoveryTimeout: 5 * time.Second,
		StatsInterval: 500 * time.Millisecond, Capacities: capacities, Listeners: []net.Listener{ln},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.net = n
	w.serve(n, log)
}

// newGuard returns the guard that limits traffic without a promise.
func newGuard(t *testing.T, n *network.Network, book *reserve.Book) *guard.Guard {
	t.Helper()
	owner, err := n.Owner(guard.Owner, network.OwnerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return guard.New(guard.Options{Book: book, Rules: owner, Log: slog.New(slog.DiscardHandler), Interval: 500 * time.Millisecond})
}

// unheard drops events that no test checks.
func unheard(string, any) {}

// serve starts the network, the service and the API.
func (w *criticalWorld) serve(n *network.Network, log *slog.Logger) {
	w.t.Helper()
	var s *critical.Service
	owner, err := n.Owner(critical.Owner, network.OwnerOptions{OnRemoved: func(r network.Removed) { s.Removed(r) }})
	if err != nil {
		w.t.Fatal(err)
	}
	book := reserve.New(reserve.UseOf(n))
	held := newGuard(w.t, n, book)
	s = critical.New(critical.Options{Network: n, Rules: owner, Store: w.store, Book: book, Guard: held, Log: log, Publish: unheard, Interval: 500 * time.Millisecond})
	n.AddHandler(rule.ChainCritical, s)
	qos := qos.New(book, held, s)
	n.Subscribe(qos.NetworkChanged)
	a := api.New(api.Options{Version: "test", Auth: api.Auth{Tokens: []api.Token{api.NewToken("test", criticalToken)}}, Log: log})
	qos.Register(a)
	server := httptest.NewServer(a.Handler())
	if w.rest, err = client.New(client.Options{Server: server.URL, Token: criticalToken, Timeout: testTimeout}); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, part := range []func(context.Context) error{n.Run, qos.Run} {
		running.Go(func() {
			if err := part(ctx); err != nil {
				w.whole.Errorf("controller: %v", err) // it may run longer than a subtest
			}
		})
	}
	w.stop = sync.OnceFunc(func() {
		cancel()
		w.rest.Close()
		server.Close()
		running.Wait()
	})
	<-s.Ready()
	w.eventually("all links", func() bool { return len(n.Topology().Links) == w.links })
}

func (w *criticalWorld) eventually(what string, ok func() bool) {
	w.t.Helper()
	deadline := time.After(testTimeout)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			w.t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}

// greet makes a host send something, so that its place is known.
func (w *criticalWorld) greet(host string) {
	w.t.Helper()
	other := "b3"
	if strings.HasPrefix(host, "b") {
		other = "a3"
	}
	w.eventually(host+" reaches "+other, func() bool {
		return w.lab.Host(host).Command(w.t.Context(), "ping", "-c1", "-W1", w.lab.Host(other).Addr().String()).Run() == nil
	})
}

// define makes UDP packets to port 5001 critical.
func (w *criticalWorld) define(rate units.Rate) {
	w.t.Helper()
	w.defineAs(critical.Spec{Name: "video", Rate: rate, Match: match.Flow{UDPDst: "5001", IPv4Dst: "10.0.0.0/8"}, IdleTimeout: "2s"})
}

// defineAs adds a definition of critical flows.
func (w *criticalWorld) defineAs(spec critical.Spec) {
	w.t.Helper()
	if err := w.rest.Do(w.t.Context(), http.MethodPost, "/api/v1/qos/critical", spec, nil); err != nil {
		w.t.Fatal(err)
	}
}

func (w *criticalWorld) flows() []critical.Record {
	var out []critical.Record
	if err := w.rest.Get(context.Background(), "/api/v1/qos/flows", &out); err != nil {
		w.t.Error(err)
	}
	return out
}

// placed waits until there are n flows, and all of them have been placed.
func (w *criticalWorld) placed(n int) []critical.Record {
	w.t.Helper()
	var all []critical.Record
	w.eventually("flows are placed", func() bool {
		all = w.flows()
		for _, f := range all {
			if f.State == critical.StatePlacing {
				return false
			}
		}
		return len(all) == n
	})
	return all
}

// streamOf sends numbered packets of a critical flow, as many and as large ones as o says.
func (w *criticalWorld) streamOf(from, to string, o testbed.StreamOptions) *testbed.Stream {
	w.t.Helper()
	o.Sender, o.Receiver, o.To = w.lab.Host(from), w.lab.Host(to), netip.AddrPortFrom(w.lab.Host(to).Addr(), 5001)
	s, err := testbed.StartStream(w.t.Context(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// middle returns the switch between s1 and s4 that a flow passes.
func middle(r critical.Record) string {
	if len(r.Path) != 3 {
		return ""
	}
	return []string{1: "s1", 2: "s2", 3: "s3", 4: "s4"}[r.Path[1].Switch]
}
