package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

func shortContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// TestPrepareRefuses checks that invalid announcements are refused as a whole, with the name of the
// field.
func TestPrepareRefuses(t *testing.T) {
	p := newPair(t, nil)
	f := &flow{p: p, id: agentapi.NewSessionID(), key: agentapi.NewKey()}
	good, _ := p.requests(f, netip.MustParseAddrPort("127.0.0.1:999"), agentapi.Params{})
	for _, c := range []struct {
		field  string
		change func(r *agentapi.PrepareRequest)
	}{
		{"id", func(r *agentapi.PrepareRequest) { r.ID = agentapi.SessionID{} }},
		{"key", func(r *agentapi.PrepareRequest) { r.Key = agentapi.Key{} }},
		{"role", func(r *agentapi.PrepareRequest) { r.Role = "boss" }},
		{"client", func(r *agentapi.PrepareRequest) { r.Client = netip.AddrPort{} }},
		{"client", func(r *agentapi.PrepareRequest) { r.Client = netip.MustParseAddrPort("127.0.0.1:0") }},
		{"client", func(r *agentapi.PrepareRequest) { r.Client = netip.MustParseAddrPort("[::1]:80") }},
		{"client", func(r *agentapi.PrepareRequest) { r.Client = netip.MustParseAddrPort("224.0.0.1:80") }},
		{"server", func(r *agentapi.PrepareRequest) { r.Server = netip.MustParseAddrPort("0.0.0.0:80") }},
		{"server", func(r *agentapi.PrepareRequest) { r.Server = netip.MustParseAddrPort("127.0.0.9:0") }},
		{"peer.addr", func(r *agentapi.PrepareRequest) { r.Peer.Addr = netip.Addr{} }},
		{"peer.addr", func(r *agentapi.PrepareRequest) { r.Peer.Addr = p.x.cfg.DataAddr }},
		{"peer.data_ports", func(r *agentapi.PrepareRequest) { r.Peer.DataPorts = nil }},
		{"peer.data_ports", func(r *agentapi.PrepareRequest) { r.Peer.DataPorts = []uint16{0} }},
		{"idle", func(r *agentapi.PrepareRequest) { r.Idle = -1 }},
		{"context", func(r *agentapi.PrepareRequest) {
			r.Context = json.RawMessage(`"` + strings.Repeat("x", maxContext) + `"`)
		}},
		{"params.connections", func(r *agentapi.PrepareRequest) { r.Params.Connections = 1000 }},
		{"params.chunk_bytes", func(r *agentapi.PrepareRequest) { r.Params.ChunkBytes = 1 }},
		{"params.queue", func(r *agentapi.PrepareRequest) { r.Params.Queue = -1 }},
		{"params.paths", func(r *agentapi.PrepareRequest) { r.Params.Paths = 65 }},
		{"params.transport", func(r *agentapi.PrepareRequest) { r.Params.Transport = "pigeon" }},
		{"params.congestion_control", func(r *agentapi.PrepareRequest) { r.Params.CongestionControl = "hope" }},
		{"paths", func(r *agentapi.PrepareRequest) { r.Paths = make([]agentapi.Path, 65) }},
		{"paths[0].rate", func(r *agentapi.PrepareRequest) { r.Paths = []agentapi.Path{{Rate: 1 << 60}} }},
		{"paths[1].rtt", func(r *agentapi.PrepareRequest) { r.Paths = []agentapi.Path{{}, {RTT: -1}} }},
		{"params.share", func(r *agentapi.PrepareRequest) { r.Params.Share = "greedy" }},
		{"params.fairness", func(r *agentapi.PrepareRequest) { r.Params.Fairness = "agent" }},
		{"params.weight", func(r *agentapi.PrepareRequest) { r.Params.Weight = agentapi.MaxWeight + 1 }},
		{"params.tls", func(r *agentapi.PrepareRequest) { r.Params.TLS = true }},
	} {
		req := good
		c.change(&req)
		_, err := p.toX.Prepare(shortContext(t), req)
		var problem *control.Problem
		if !errors.As(err, &problem) || problem.Code != control.CodeBadRequest || problem.Field != c.field || problem.Status != 400 || problem.Detail == "" {
			t.Errorf("%s: %v", c.field, err)
		}
	}
	if n := len(p.x.list()); n != 0 {
		t.Errorf("%d sessions after refusals only", n)
	}
}

func TestPrepareLimits(t *testing.T) {
	p := newPair(t, func(x, _ *Config) { x.MaxSessions = 1 })
	ctx := shortContext(t)
	prepare := func() error {
		f := &flow{p: p, id: agentapi.NewSessionID(), key: agentapi.NewKey()}
		x, _ := p.requests(f, netip.MustParseAddrPort("127.0.0.1:999"), agentapi.Params{})
		_, err := p.toX.Prepare(ctx, x)
		if err != nil {
			return err
		}
		_, err = p.toX.Prepare(ctx, x) // the same announcement again
		if control.CodeOf(err) != control.CodeDuplicate {
			t.Errorf("same id: %v", err)
		}
		return nil
	}
	if err := prepare(); err != nil {
		t.Fatal(err)
	}
	if err := prepare(); control.CodeOf(err) != control.CodeFull {
		t.Errorf("one too many: %v", err)
	}
	if s, err := p.toX.Drain(ctx, true); err != nil || !s.Draining {
		t.Errorf("drain: %+v %v", s, err)
	}
	if err := prepare(); control.CodeOf(err) != control.CodeDraining {
		t.Errorf("draining: %v", err)
	}
}

// TestCommitFails checks that Commit reports whether the server has refused or does not exist, and
// that nothing is left of the session.
func TestCommitFails(t *testing.T) {
	nobody, err := reserve(netip.AddrPortFrom(addrServer, 0), "")
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.close()
	full, err := net.Listen("tcp", "127.0.0.6:0")
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	fillBacklog(t, full)
	for _, c := range []struct {
		server  string
		timeout time.Duration
		code    control.Code
	}{
		{netip.AddrPortFrom(addrServer, nobody.port).String(), testTimeout, control.CodeRefused},
		{full.Addr().String(), 300 * time.Millisecond, control.CodeTimeout},
	} {
		p := newPair(t, func(_, y *Config) { y.DialTimeout = c.timeout })
		ctx := shortContext(t)
		f := &flow{p: p, id: agentapi.NewSessionID(), key: agentapi.NewKey()}
		_, y := p.requests(f, netip.MustParseAddrPort("127.0.0.1:999"), agentapi.Params{})
		y.Server = netip.MustParseAddrPort(c.server)
		if _, err := p.toY.Prepare(ctx, y); err != nil {
			t.Fatal(err)
		}
		if err := p.toY.Commit(ctx, f.id); control.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", c.server, err, c.code)
		}
		if r := f.ended(p.y); r.Reason != agentapi.ReasonRefused {
			t.Errorf("%s: ended %+v", c.server, r)
		}
	}
}

// TestExpiry checks that a session that is not committed expires, and so does one whose client does
// not connect.
func TestExpiry(t *testing.T) {
	for _, commit := range []bool{false, true} {
		t.Run(fmt.Sprintf("commit=%v", commit), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, func(x, y *Config) { x.PrepareTimeout, y.PrepareTimeout = 5*time.Second, 5*time.Second })
			ctx := shortContext(t)
			f := &flow{p: p, id: agentapi.NewSessionID(), key: agentapi.NewKey()}
			x, y := p.requests(f, netip.MustParseAddrPort("127.0.0.1:999"), agentapi.Params{})
			if _, err := p.toY.Prepare(ctx, y); err != nil {
				t.Fatal(err)
			}
			at, err := p.toX.Prepare(ctx, x)
			if err != nil {
				t.Fatal(err)
			}
			if commit {
				if err := p.toY.Commit(ctx, f.id); err != nil {
					t.Fatal(err)
				}
				if err := p.toX.Commit(ctx, f.id); err != nil {
					t.Fatal(err)
				}
			}
			if r := f.ended(p.x); r.Reason != agentapi.ReasonExpired {
				t.Errorf("X ended %+v", r)
			}
			if r := f.ended(p.y); r.Reason != agentapi.ReasonExpired && r.Reason != agentapi.ReasonPeerReset {
				t.Errorf("Y ended %+v", r)
			}
			if c, err := net.Dial("tcp", netip.AddrPortFrom(at.Addr, at.Port).String()); err == nil {
				_ = c.Close()
				t.Error("the session's port is still open")
			}
		})
	}
}

// TestListings checks that listings and records return the controller's own data and the values of
// the announcement.
func TestListings(t *testing.T) {
	p := newPair(t, nil)
	ctx := shortContext(t)
	f := &flow{p: p, id: agentapi.NewSessionID(), key: agentapi.NewKey()}
	x, _ := p.requests(f, netip.MustParseAddrPort("127.0.0.1:999"), agentapi.Params{Queue: 7})
	x.Context = json.RawMessage(`{"rules":[1,2]}`)
	at, err := p.toX.Prepare(ctx, x)
	if err != nil {
		t.Fatal(err)
	}
	list, err := p.toX.Sessions(ctx)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v %v", list, err)
	}
	one, err := p.toX.Session(ctx, f.id)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []agentapi.Session{list[0], one} {
		if s.ID != f.id || string(s.Context) != string(x.Context) || s.Port != at.Port || s.Reply.Port != at.Port || s.Params.Queue != 7 || s.Phase != agentapi.PhasePrepared {
			t.Errorf("%+v", s)
		}
	}
	events := make(chan agentapi.Event, 16)
	watch, stop := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- p.toX.Watch(watch, control.Silence, func(e agentapi.Event) { events <- e }) }()
	if e := <-events; e.Instance != p.x.server.Now().Instance || len(e.Live) != 1 || e.Live[0].ID != f.id || e.Status.Sessions != 1 {
		t.Errorf("first event %+v", e)
	}
	if err := p.toX.Abort(ctx, f.id); err != nil {
		t.Fatal(err)
	}
	for e := range events {
		if len(e.Ended) > 0 {
			if r := e.Ended[0]; r.ID != f.id || r.Reason != agentapi.ReasonAborted || e.Seq == 0 || string(r.Context) != string(x.Context) {
				t.Errorf("record %+v", r)
			}
			break
		}
	}
	stop()
	if err := <-watched; !errors.Is(err, context.Canceled) {
		t.Errorf("watch ended with %v", err)
	}
	if _, err := p.toX.Session(ctx, f.id); control.CodeOf(err) != control.CodeNotFound {
		t.Errorf("after abort: %v", err)
	}
}

// TestWatchSilent checks that a reader of events notices an agent that has become silent.
func TestWatchSilent(t *testing.T) {
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{}\n")
		w.(http.Flusher).Flush()
		<-release
	}))
	defer srv.Close()
	defer close(release)
	c, err := agentapi.NewClient(srv.URL, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Watch(shortContext(t), control.Silence, func(agentapi.Event) {}); !errors.Is(err, control.ErrSilent) {
		t.Errorf("%v, want %v", err, control.ErrSilent)
	}
}

// TestControlTLS checks that the control server requires the controller's certificate.
func TestControlTLS(t *testing.T) {
	ca := newAuthority(t)
	dir := t.TempDir()
	pair, _ := ca.issue("agent1", pki.RoleAgent)
	cfg := testConfig(addrX)
	for name, b := range map[string][]byte{"cert": pair.Cert, "key": pair.Key, "ca": ca.ca.PEM()} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Cert, cfg.Key, cfg.CA = filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "ca")
	cfg.Roles = pki.Mapping{"old-controller": pki.RoleController, "agent2": pki.RoleController}
	a, err := New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	base := "https://" + a.ControlAddr().String()
	stranger := newAuthority(t)
	for _, c := range []struct {
		name  string
		certs []tls.Certificate
		good  bool
	}{
		{"controller", second(ca.issue("controller", pki.RoleController)), true},
		{"no role", ca.withoutRole("nobody"), false},
		{"no role, but mapped", ca.withoutRole("old-controller"), true},
		{"an operator", second(ca.issue("operator", pki.RoleOperator)), false},
		{"a switch", second(ca.issue("switch", pki.RoleSwitch)), false},
		{"a neighbour", second(ca.issue("neighbour", pki.RoleNeighbour)), false},
		{"a node", second(ca.issue("node", pki.RoleNode)), false},
		{"another agent", second(ca.issue("agent2", pki.RoleAgent)), false},
		{"another authority's controller", second(stranger.issue("controller", pki.RoleController)), false},
		{"nobody", nil, false},
	} {
		client, err := agentapi.NewClient(base, &tls.Config{RootCAs: ca.pool, Certificates: c.certs}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Status(shortContext(t))
		if (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
		client.Close()
	}
}

func second(_ pki.Pair, c tls.Certificate) []tls.Certificate { return []tls.Certificate{c} }

// TestMetrics checks that metrics are served, and that they count.
func TestMetrics(t *testing.T) {
	p := newPair(t, nil)
	f := p.open(agentapi.Params{})
	exchange(t, f, 1234, 5)
	f.ended(p.x)
	res, err := http.Get("http://" + p.x.ControlAddr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`sluice_sos_agent_sessions_ended_total{reason="closed"} 1`, `sluice_sos_agent_session_bytes_total{direction="up"} 1234`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// TestConfig checks that invalid configurations are refused with the name of the field.
func TestConfig(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*Config)
	}{
		{"data_addr", func(c *Config) { c.DataAddr = netip.Addr{} }},
		{"data_addr", func(c *Config) { c.DataAddr = netip.IPv4Unspecified() }},
		{"second_addr", func(c *Config) { c.SecondAddr = addrY }},
		{"listen", func(c *Config) { c.Listen = "nowhere" }},
		{"listen", func(c *Config) { c.Listen = "0.0.0.0:8440" }},
		{"cert", func(c *Config) { c.Cert = "x" }},
		{"data_ports", func(c *Config) { c.DataPorts = []uint16{7, 7} }},
		{"max_sessions", func(c *Config) { c.MaxSessions = -1 }},
		{"chunk_bytes", func(c *Config) { c.ChunkBytes = 5 }},
		{"beat", func(c *Config) { c.Beat = -1 }},
		{"conn_timeout", func(c *Config) { c.ConnTimeout = c.Beat }},
		{"congestion_control", func(c *Config) { c.CongestionControl = "hope" }},
		{"transport", func(c *Config) { c.Transport = "pigeon" }},
	} {
		cfg := testConfig(addrX)
		c.change(&cfg)
		a, err := New(context.Background(), cfg)
		var fe *FieldError
		if !errors.As(err, &fe) || fe.Field != c.field || fe.Want == "" {
			t.Errorf("%s: %v", c.field, err)
		}
		if a != nil {
			a.Close()
		}
	}
}

// FuzzBodies checks that any body of a request causes at most a problem as the answer.
func FuzzBodies(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"id":"00000000000000000000000000000001","role":"client","client":"127.0.0.1:1"}`))
	f.Add([]byte(`{"params":{"connections":-1},"idle":"x"}`))
	f.Add([]byte(`{"key":"AAAA"}{}`))
	a, err := New(context.Background(), testConfig(addrX))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(a.Close)
	f.Fuzz(func(t *testing.T, body []byte) {
		w := httptest.NewRecorder()
		a.server.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/sessions", strings.NewReader(string(body))))
		if w.Code == http.StatusOK {
			for _, s := range a.list() {
				s.finish(agentapi.ReasonAborted, "", 0)
			}
			return
		}
		var p control.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Code == "" || p.Status != w.Code {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
