package cinema

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// net is a network whose links have a capacity.
type net struct {
	*servicetest.Network
	mu       sync.Mutex
	capacity uint64
	gate     uint64 // capacity of gateways' ports
	l2       bool
}

func (n *net) Capacity(at network.PortRef) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.Port == edge {
		return n.gate
	}
	return n.capacity
}

func (n *net) CanSet(_ openflow.DatapathID, f openflow.Field) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.l2 || f == openflow.FieldEthDst
}

func (n *net) set(f func()) { n.mu.Lock(); defer n.mu.Unlock(); f() }

// ledger assigns group numbers, and can refuse programs.
type ledger struct {
	*servicetest.Ledger
	refuse *atomic.Pointer[func(network.Program) error]
	stats  *atomic.Pointer[func() ([]openflow.GroupStats, error)]
}

// GroupStats implements kit.Ledger.
func (l ledger) GroupStats(context.Context, openflow.DatapathID) ([]openflow.GroupStats, error) {
	if stats := l.stats.Load(); stats != nil {
		return (*stats)()
	}
	return nil, nil
}

// Apply implements kit.Ledger.
func (l ledger) Apply(ctx context.Context, key string, p network.Program, o network.ApplyOptions) error {
	if refuse := l.refuse.Load(); refuse != nil {
		if err := (*refuse)(p); err != nil {
			return err
		}
	}
	return l.Ledger.Apply(ctx, key, p, o)
}

func (ledger) GroupID(number uint16) uint32 { return 0x5c000000 + uint32(number) }

// gatewayOf is a gateway of either kind: a control server on the loopback interface.
type gatewayOf[R, L any] struct {
	name   string
	addr   netip.Addr
	url    string
	server *control.Server[R, L]
	end    func()

	mu   sync.Mutex
	live map[string]L
}

func (g *gatewayOf[R, L]) set(f func(live map[string]L)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(g.live)
}

func (g *gatewayOf[R, L]) list() (all []L) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, x := range g.live {
		all = append(all, x)
	}
	return all
}

// run starts the gateway, at its former address if it had one.
func newGateway[R, L any](t testing.TB, name string, addr netip.Addr) *gatewayOf[R, L] {
	g := &gatewayOf[R, L]{name: name, addr: addr, live: map[string]L{}}
	g.server = control.NewServer[R](control.Options[L]{
		Log: slog.New(slog.DiscardHandler), MaxSessions: mostViewers, Live: g.list, Sessions: func() int { return len(g.list()) },
		Status: func() control.Status {
			return control.Status{Addrs: []netip.Addr{addr}, PublicURL: "https://" + name + ".example", Version: "test"}
		},
	})
	front := httptest.NewServer(g.server)
	g.url = front.URL
	g.end = sync.OnceFunc(func() { g.server.Close(); front.CloseClientConnections(); front.Close() })
	t.Cleanup(g.end)
	return g
}

// fakeIngress is an ingress gateway, fakeEgress an egress gateway.
type fakeIngress struct {
	*gatewayOf[gatewayapi.ChannelEvent, gatewayapi.ChannelState]
	mu     sync.Mutex
	bursts []string
	fail   error
	failed int // number of failed requests
}

func newStudio(t testing.TB, name string, addr netip.Addr) *fakeIngress {
	s := &fakeIngress{gatewayOf: newGateway[gatewayapi.ChannelEvent, gatewayapi.ChannelState](t, name, addr)}
	control.Handle(s.server, "PUT /v1/channels/{name}", func(_ *http.Request, c gatewayapi.Channel) (control.Nothing, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fail == nil {
			s.set(func(live map[string]gatewayapi.ChannelState) {
				live[c.Name] = gatewayapi.ChannelState{Channel: c, OnAir: gatewayapi.OnAirLive}
			})
		} else {
			s.failed++
		}
		return control.Nothing{}, s.fail
	})
	control.Handle(s.server, "DELETE /v1/channels/{name}", func(r *http.Request, _ control.Nothing) (control.Nothing, error) {
		s.set(func(live map[string]gatewayapi.ChannelState) { delete(live, r.PathValue("name")) })
		return control.Nothing{}, nil
	})
	control.Handle(s.server, "POST /v1/channels/{name}/burst", func(r *http.Request, b gatewayapi.Burst) (control.Nothing, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bursts = append(s.bursts, fmt.Sprintf("%s to %v", r.PathValue("name"), b.To))
		return control.Nothing{}, nil
	})
	return s
}

// fails makes the gateway answer with an error, or carry out requests again if err is nil. It
// returns how many requests have failed so far.
func (s *fakeIngress) fails(err error) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
	return s.failed
}

func (s *fakeIngress) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bursts)
}

type fakeEgress = gatewayOf[gatewayapi.ViewerEvent, gatewayapi.Viewer]

// tells makes an egress gateway report a viewer, or remove it from its report if there are no channels.
func tells(h *fakeEgress, viewer string, port uint16, channels ...string) {
	h.set(func(live map[string]gatewayapi.Viewer) {
		if delete(live, viewer); len(channels) > 0 {
			live[viewer] = gatewayapi.Viewer{ID: viewer, Port: port, Channels: channels, Player: "whep"}
		}
	})
}

// harness runs a service with fakes: switches 1, 2 and 3 in a triangle, a studio at 1, halls at 2
// and 3, and channels a and b.
type harness struct {
	t          testing.TB
	net        *net
	ledger     ledger
	store      *memstore.Store
	bus        *event.Bus
	first      uint64 // of its numbers
	studio     *fakeIngress
	east, west *fakeEgress
	settle     time.Duration
	configured map[string]Channel
	treatments network.Treatments

	service *Service
	api     http.Handler
	stop    func()
}

const edge = 9 // the port of gateways

// mostViewers is how many viewers an egress gateway accepts.
var mostViewers = 100

func port(d openflow.DatapathID, p uint32) network.PortRef {
	return network.PortRef{Switch: d, Port: p}
}

// triangle returns three switches; the port towards another switch has that switch's number.
// The given links are missing.
func triangle(version uint64, cut ...[2]openflow.DatapathID) *network.Topology {
	var links []network.Link
	for _, x := range [][2]openflow.DatapathID{{1, 2}, {2, 3}, {1, 3}} {
		if !slices.Contains(cut, x) {
			a, b := port(x[0], uint32(x[1])), port(x[1], uint32(x[0]))
			links = append(links, network.Link{From: a, To: b}, network.Link{From: b, To: a})
		}
	}
	return topology.New(version, []openflow.DatapathID{1, 2, 3}, links)
}

var (
	studioAddr = netip.MustParseAddr("10.0.0.1")
	eastAddr   = netip.MustParseAddr("10.0.0.2")
	westAddr   = netip.MustParseAddr("10.0.0.3")
)

func host(addr netip.Addr, d openflow.DatapathID) network.Host {
	return network.Host{MAC: openflow.MAC{2, 0, 0, 0, 0, addr.As4()[3]}, IPs: []netip.Addr{addr}, At: port(d, edge)}
}

func newBench(t testing.TB) *harness {
	b := &harness{
		t: t, net: &net{Network: servicetest.NewNetwork(triangle(1), host(studioAddr, 1), host(eastAddr, 2), host(westAddr, 3)), capacity: 100e6},
		ledger: ledger{servicetest.NewLedger(), &atomic.Pointer[func(network.Program) error]{}, &atomic.Pointer[func() ([]openflow.GroupStats, error)]{}}, store: memstore.New(), settle: 10 * time.Second,
		studio: newStudio(t, "studio", studioAddr),
		east:   newGateway[gatewayapi.ViewerEvent, gatewayapi.Viewer](t, "east", eastAddr),
		west:   newGateway[gatewayapi.ViewerEvent, gatewayapi.Viewer](t, "west", westAddr),
		configured: map[string]Channel{
			"a": {Name: "a", Number: 1, BitRate: 2e6, Source: "test:"}, "b": {Name: "b", Number: 2, BitRate: 2e6, Source: "test:"},
		},
	}
	bus, err := event.Open(t.Context(), b.store, 1000)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	b.bus, b.first = bus, bus.Last()
	b.start()
	t.Cleanup(func() { b.stop() })
	b.register("ingress", "studio", b.studio.url, studioAddr)
	b.register("egress", "east", b.east.url, eastAddr)
	b.register("egress", "west", b.west.url, westAddr)
	b.gatewaysUp()
	return b
}

// onlyGuards reports whether there are no rules of channels.
func (b *harness) onlyGuards() bool {
	return slices.Equal(slices.Sorted(slices.Values(b.ledger.Keys())), []string{"guard", "guard-by-ecn"})
}

// start runs a service as a controller does at its start.
func (b *harness) start() {
	b.service = New(Options{
		Network: b.net, Rules: b.ledger, Store: b.store, Bus: b.bus, Log: slog.New(slog.DiscardHandler), Settle: b.settle, Configured: b.configured,
		Treatments: &b.treatments,
	})
	a := api.New(api.Options{Auth: api.Auth{Tokens: []api.Token{api.NewToken("test", "secret")}, ClientCerts: true}, Log: slog.New(slog.DiscardHandler)})
	b.service.Register(a)
	b.api = a.Handler()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := b.service
	go func() { done <- s.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
	select {
	case <-s.Loaded():
	case <-time.After(time.Minute):
		b.t.Fatal("not loaded")
	}
}

func (b *harness) register(kind, name, url string, addr netip.Addr) {
	b.t.Helper()
	r, faults := agents.Parse(control.AgentSpec{Name: name, URL: url, Addrs: []string{addr.String()}})
	if len(faults) > 0 {
		b.t.Fatal(faults)
	}
	add := b.service.egress.Add
	if kind == "ingress" {
		add = b.service.sources.registry.Add
	}
	if err := add(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
}

func (b *harness) gatewaysUp() {
	b.t.Helper()
	b.eventually("gateways are up and placed", func() bool {
		for _, i := range append(b.service.egress.Infos(), b.service.sources.registry.Infos()...) {
			if i.State != agents.Up || len(i.Places) == 0 || i.Version == "" {
				return false
			}
		}
		return true
	})
}

// eventually waits until f reports true.
func (b *harness) eventually(what string, f func() bool) {
	b.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-deadline:
			b.t.Fatalf("still not: %s", what)
		case <-tick.C:
		}
	}
}

// id returns the identifier of a viewer.
func id(n int) string { return fmt.Sprintf("%032x", n) }

// want sends a gateway's request for a viewer.
func (b *harness) want(h *fakeEgress, n int, at uint16, channels ...string) error {
	tells(h, id(n), at, channels...)
	_, err := b.service.changeViewer(b.t.Context(), &gatewayapi.Wanted{Gateway: h.name, Viewer: id(n), Port: at, Channels: channels})
	return err
}

func (b *harness) mustWant(h *fakeEgress, n int, at uint16, channels ...string) {
	b.t.Helper()
	if err := b.want(h, n, at, channels...); err != nil {
		b.t.Fatal(err)
	}
}

// copies returns the destinations to which the switches copy a channel, and the number of links
// that its rules use.
func (b *harness) copies(channel string) (to []string, links int) {
	p := b.ledger.Program(channel)
	for _, g := range p.Groups {
		for _, x := range g.Buckets {
			port := x.Actions[2].OXM
			to = append(to, fmt.Sprintf("%v:%d", x.Actions[1].OXM.Addr(), port.Uint()))
		}
	}
	for _, r := range p.Rules {
		for _, a := range r.Actions {
			if a.Type == openflow.ActionOutput {
				links++
			}
		}
	}
	slices.Sort(to)
	return to, links
}

// expect fails the test unless a channel is copied to just these destinations, over that many
// links.
func (b *harness) expect(channel string, links int, to ...string) {
	b.t.Helper()
	if got, n := b.copies(channel); !slices.Equal(got, to) || n != links {
		b.t.Errorf("%s is copied to %v over %d links, want %v over %d", channel, got, n, to, links)
	}
}

func (b *harness) awaitCopies(channel string, to ...string) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("%s is copied to %v", channel, to), func() bool { got, _ := b.copies(channel); return slices.Equal(got, to) })
}

// ask sends a request with a token, and asAgent one with an agent's certificate.
func (b *harness) ask(method, path, body string) (int, string) {
	return b.request(method, path, body, func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") })
}

func (b *harness) asAgent(name, method, path, body string) (int, string) {
	return b.request(method, path, body, func(r *http.Request) { r.TLS = certificate(name, pki.RoleAgent) })
}

// certificate returns the state of a connection whose client has a verified certificate.
func certificate(name string, role pki.Role) *tls.ConnectionState {
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: []string{pki.Organization}, OrganizationalUnit: []string{string(role)}}}
	return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
}

func (b *harness) request(method, path, body string, as func(*http.Request)) (int, string) {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, "/api/v1/cinema/"+path, bytes.NewBufferString(body))
	r.Header.Set("Content-Type", "application/json")
	as(r)
	w := httptest.NewRecorder()
	b.api.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// get decodes an answer.
func get[T any](b *harness, path string) (v T) {
	b.t.Helper()
	status, body := b.ask("GET", path, "")
	if err := json.Unmarshal([]byte(body), &v); status != http.StatusOK || err != nil {
		b.t.Fatalf("GET %s: %d %s: %v", path, status, body, err)
	}
	return v
}

// trouble returns a channel's trouble from the API.
func (b *harness) trouble(channel string) string {
	return get[ChannelInfo](b, "channels/"+channel).Problem
}

// events returns the kinds of the events so far.
func (b *harness) events() (kinds []string) {
	s := b.bus.Subscribe(b.first)
	for last := b.bus.Last(); last > b.first; {
		e, err := s.Next(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		if kinds = append(kinds, e.Kind); e.ID >= last {
			break
		}
	}
	return kinds
}
