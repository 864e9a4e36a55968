package domain

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick are times for tests. Waits that end without success and are retried are short. Deadlines
// of events that do occur are longer than any wait of a test, so that no slow machine reaches
// them, and a test that waits for a deadline instead of its event fails.
var quick = Timing{
	Answer: 2 * waitLimit, Request: 2 * waitLimit, Move: 5 * time.Minute, Forget: 50 * time.Millisecond,
	Hello: time.Hour, Retry: 10 * time.Millisecond, RetryMax: 50 * time.Millisecond,
}

// fate is what happens to a message in transit.
type fate string

const (
	goesThrough fate = ""
	lost        fate = "request lost"
	replyLost   fate = "reply lost"
	doubled     fate = "doubled"
)

// testDomain is a domain with a real API over TLS and a fake network.
type testDomain struct {
	t      testing.TB
	name   string
	number int
	dir    string // of its authority
	host   *fakeHost
	store  store.Store
	timing Timing
	now    func() time.Time // its clock; nil is the right one
	url    string
	closed chan struct{}
	fate   func(kind Kind, from string) fate
	delay  func(kind Kind) time.Duration
	events []string

	mu      sync.Mutex
	svc     *Service
	handler http.Handler
	stop    func()
	list    []Neighbour
}

func (d *testDomain) service() *Service {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.svc
}

func (d *testDomain) prefix() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(d.number), 0, 0}), 16)
}

func (d *testDomain) edge() *network.PortRef {
	return &network.PortRef{Switch: openflow.DatapathID(d.number), Port: 1}
}

// newDomains creates domains called a, b, c ... with the neighbours that near selects, and starts
// them.
func newDomains(t testing.TB, count int, timing Timing, near func(i, j int) bool) []*testDomain {
	t.Helper()
	var list []*testDomain
	for i := range count {
		list = append(list, newDomain(t, i, timing))
	}
	for i, d := range list {
		for j, o := range list {
			if i == j || !near(i, j) {
				continue
			}
			n := neighbourFor(t, d, o)
			for k, third := range list {
				if k != i && k != j {
					n.Transit = append(n.Transit, third.prefix())
				}
			}
			d.list = append(d.list, n)
		}
	}
	for _, d := range list {
		d.start()
	}
	return list
}

func everybody(int, int) bool { return true }

func newDomain(t testing.TB, number int, timing Timing) *testDomain {
	t.Helper()
	d := &testDomain{t: t, name: string(rune('a' + number)), number: number + 1, dir: t.TempDir(), timing: timing, store: memstore.New(), closed: make(chan struct{})}
	d.host = newFakeHost(d.name)
	if _, err := pki.Init(d.dir, d.name+" authority", time.Hour); err != nil {
		t.Fatal(err)
	}
	config, err := pki.Server(issueFor(t, d, pki.RoleController, "controller-"+d.name), false)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.url = "https://" + l.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(d.serve), ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(tls.NewListener(l, config))
	}()
	t.Cleanup(func() {
		d.shut()
		close(d.closed)
		server.Close()
		<-done
		d.store.Close()
	})
	return d
}

// issueFor issues a certificate of d's authority.
func issueFor(t testing.TB, d *testDomain, role pki.Role, name string) pki.Files {
	t.Helper()
	ca, err := pki.Load(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Request{Role: role, Name: name, Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := pair.Write(dir, name); err != nil {
		t.Fatal(err)
	}
	return pki.Files{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(d.dir, pki.CACertFile)}
}

// neighbourFor returns o as d sees it, with the certificate that o has issued to d.
func neighbourFor(t testing.TB, d, o *testDomain) Neighbour {
	t.Helper()
	config, err := pki.Client(issueFor(t, o, pki.RoleNeighbour, d.name), pki.RoleController)
	if err != nil {
		t.Fatal(err)
	}
	return Neighbour{
		Name: o.name, URL: o.url, TLS: config, Prefixes: []netip.Prefix{o.prefix()},
		Peering: network.PortRef{Switch: openflow.DatapathID(d.number), Port: uint32(100 + o.number)},
	}
}

// start starts the domain as a controller does: neighbours may send messages before it has read
// its devices. Meanwhile the functions are called.
func (d *testDomain) start(meanwhile ...func()) {
	d.t.Helper()
	s, err := New(Options{
		Self: d.name, Neighbours: d.list, Host: d.host, Store: d.store, Timing: d.timing, Now: d.now, Log: slog.New(slog.DiscardHandler),
		Emit: func(kind string, attrs any) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.events = append(d.events, fmt.Sprint(kind, " ", attrs))
		},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	a := api.New(api.Options{Auth: api.Auth{ClientCerts: true}, Log: slog.New(slog.DiscardHandler)})
	s.Register(a)
	d.mu.Lock()
	d.svc, d.handler = s, a.Handler()
	d.mu.Unlock()
	for _, f := range meanwhile {
		f()
	}
	if err := s.Restore(context.Background()); err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	d.mu.Lock()
	d.stop = func() { cancel(); <-done }
	d.mu.Unlock()
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
}

// shut stops the controller; the network and the store stay.
func (d *testDomain) shut() {
	d.mu.Lock()
	stop := d.stop
	d.stop, d.handler = nil, nil
	d.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// serve is the path to the API, on which messages get lost.
func (d *testDomain) serve(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	handler, decide, delay := d.handler, d.fate, d.delay
	d.mu.Unlock()
	kind := Kind(strings.TrimPrefix(r.URL.Path, Path))
	if handler == nil {
		panic(http.ErrAbortHandler)
	}
	if delay != nil {
		select {
		case <-time.After(delay(kind)):
		case <-d.closed:
			return
		}
	}
	from := ""
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		from = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	what := goesThrough
	if decide != nil {
		what = decide(kind, from)
	}
	switch what {
	case lost:
		panic(http.ErrAbortHandler)
	case replyLost:
		handler.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case doubled:
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		again := r.Clone(r.Context())
		r.Body, again.Body = io.NopCloser(bytes.NewReader(b)), io.NopCloser(bytes.NewReader(b))
		handler.ServeHTTP(w, r)
		second := httptest.NewRecorder()
		handler.ServeHTTP(second, again)
		if second.Code != http.StatusConflict || !strings.Contains(second.Body.String(), string(CodeReplay)) {
			d.t.Errorf("%s to %s, a second time: %d %s", kind, d.name, second.Code, second.Body)
		}
	default:
		handler.ServeHTTP(w, r)
	}
}

func (d *testDomain) setFate(f func(kind Kind, from string) fate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fate = f
}

func (d *testDomain) setDelay(f func(Kind) time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = f
}

func (d *testDomain) sawEvent(part string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.events, func(e string) bool { return strings.Contains(e, part) })
}

// once gives that fate to the first message of the kind.
func once(kind Kind, what fate) func(Kind, string) fate {
	var mu sync.Mutex
	done := false
	return func(k Kind, _ string) fate {
		mu.Lock()
		defer mu.Unlock()
		if k != kind || done {
			return goesThrough
		}
		done = true
		return what
	}
}

// device registers a device at home and attaches it there. It has two
// interfaces.
func (d *testDomain) device(n int, edit func(*fakeDevice)) (openflow.MAC, string) {
	id := fmt.Sprintf("car-%d", n)
	base := openflow.MAC{2, byte(d.number), byte(n >> 16), byte(n >> 8), byte(n), 1}
	second := base
	second[5] = 2
	b := d.prefix().Addr().As4()
	b[2], b[3] = byte(n>>8), byte(n)
	f := &fakeDevice{key: "secret", places: []string{edge}, Known: Known{Here: true, Overlap: overlap, Visitor: Visitor{
		Home: d.name, Device: id, MACs: []openflow.MAC{base, second}, IP: netip.AddrFrom4(b), Policy: registry.PolicySeamless, Signed: true,
	}}}
	if edit != nil {
		edit(f)
	}
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	d.host.devices[id] = f
	return second, id
}
