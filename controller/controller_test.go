package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/services"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// syncBuffer is a log that a test reads while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// running is a controller under test.
type running struct {
	*Controller
	client *client.Client
	token  string
	url    string
	log    *syncBuffer
	stop   func()
}

// run starts a controller. stop, or the end of the test, ends it.
func run(t *testing.T, cfg *config.Controller) *running {
	t.Helper()
	r := &running{log: &syncBuffer{}}
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	r.Controller, err = New(ctx, Options{
		Services: services.Definitions(), Config: cfg, Log: slog.New(slog.NewTextHandler(r.log, nil)), API: listen(t), OpenFlow: []net.Listener{listen(t)},
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if r.client != nil {
			r.client.Close()
		}
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the controller does not stop; its log:\n%s", r.log)
		}
	})
	t.Cleanup(r.stop)
	addr, _ := r.Addr()
	r.url = "http://" + addr.String()
	b, err := os.ReadFile(filepath.Join(cfg.DataDir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	r.token = strings.TrimSpace(string(b))
	if r.client, err = client.New(client.Options{Server: r.url, Token: r.token, Timeout: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	return r
}

func testConfig(t *testing.T, kind string) *config.Controller {
	t.Helper()
	cfg := services.DefaultConfig()
	cfg.DataDir = t.TempDir()
	cfg.Store.Kind = kind
	return cfg
}

// ask sends a raw body and returns the status and the answer.
func (r *running) ask(t *testing.T, method, path, body string) (int, string, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(b)
}

func (r *running) get(t *testing.T, path string, out any) {
	t.Helper()
	if err := r.client.Get(t.Context(), path, out); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}

func TestStateSurvivesRestart(t *testing.T) {
	cfg := testConfig(t, "embedded")
	r := run(t, cfg)
	var first, second Status
	r.get(t, "/api/v1/status", &first)
	const entry = `{"clients":["10.0.0.0/24"],"servers":["10.1.0.7"],"ports":["80"]}`
	if status, _, body := r.ask(t, http.MethodPost, "/api/v1/sos/whitelist", entry); status != http.StatusCreated {
		t.Fatalf("add a whitelist entry: %d %s", status, body)
	}
	var before, after []map[string]any
	r.get(t, "/api/v1/sos/whitelist", &before)
	token := r.token
	r.stop()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()

	r = run(t, cfg)
	r.get(t, "/api/v1/status", &second)
	eventually(t, "the whitelist is there again", func() bool {
		r.get(t, "/api/v1/sos/whitelist", &after)
		return fmt.Sprint(before) == fmt.Sprint(after)
	})
	if len(before) != 1 || first.Starts != 1 || second.Starts != 2 || second.LastEvent <= first.LastEvent {
		t.Errorf("whitelist %v; starts %d, %d; last events %d, %d", before, first.Starts, second.Starts, first.LastEvent, second.LastEvent)
	}
	if r.token != token {
		t.Error("the token has changed")
	}
	if strings.Contains(r.log.String(), token) {
		t.Error("the log shows the token")
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestRefusesToStart(t *testing.T) {
	taken := listen(t)
	defer taken.Close()
	port := taken.Addr().String()
	for _, c := range []struct {
		name   string
		change func(*config.Controller)
		want   string
	}{
		{"API address in use", func(c *config.Controller) { _ = c.API.Listen.UnmarshalText([]byte(port)) }, "api.listen"},
		{"OpenFlow address in use", func(c *config.Controller) { _ = c.OpenFlow.Listen[0].UnmarshalText([]byte(port)) }, "listening for switches"},
		{"data folder that is a file", func(c *config.Controller) { c.DataDir = "/dev/null" }, "data_dir"},
		{"certificate that is none", func(c *config.Controller) {
			c.Agents.TLS = config.TLS{Cert: "/dev/null", Key: "/dev/null", CA: "/dev/null"}
		}, "agents.tls"},
		{"cluster that is not there", func(c *config.Controller) {
			c.Store.Kind, c.Store.Endpoints = "etcd", []string{"http://127.0.0.1:1"}
		}, "127.0.0.1:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig(t, "memory")
			_ = cfg.API.Listen.UnmarshalText([]byte("127.0.0.1:0"))
			_ = cfg.OpenFlow.Listen[0].UnmarshalText([]byte("127.0.0.1:0"))
			c.change(cfg)
			patience := time.Minute
			if cfg.Store.Kind == "etcd" {
				patience = 2 * time.Second // which is how long an etcd that is not there is waited for
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := New(ctx, Options{Services: services.Definitions(), Config: cfg, Log: slog.New(slog.DiscardHandler)})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want it to name %q", err, c.want)
			}
		})
	}
}

func TestStatusConfigAndMetrics(t *testing.T) {
	cfg := testConfig(t, "memory")
	cfg.Store.Password = "hunter2"
	r := run(t, cfg)
	var status Status
	r.get(t, "/api/v1/status", &status)
	if strings.Join(status.Services, " ") != "sos handover qos cinema mobilityfirst" || len(status.OpenFlow) != 1 {
		t.Errorf("status %+v", status)
	}
	_, _, text := r.ask(t, http.MethodGet, "/api/v1/config", "")
	if strings.Contains(text, "hunter2") || !strings.Contains(text, `"discovery"`) {
		t.Errorf("configuration: %s", text)
	}
	eventually(t, "the controller is ready", func() bool {
		status, _, _ := r.ask(t, http.MethodGet, "/readyz", "")
		return status == http.StatusOK
	})
	_, _, text = r.ask(t, http.MethodGet, "/metrics", "")
	for _, line := range strings.Split(text, "\n") {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "# TYPE "), " "); ok && strings.HasPrefix(line, "# TYPE ") {
			if !strings.HasPrefix(name, "sluice_") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") && !strings.HasPrefix(name, "promhttp_") {
				t.Errorf("metric %q begins with neither sluice_ nor the name of a standard collector", name)
			}
		}
	}
	for _, name := range []string{"sluice_network_switches 0", "sluice_sos_", "go_goroutines"} {
		if !strings.Contains(text, name) {
			t.Errorf("metrics lack %q", name)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestOpenAPIDocument(t *testing.T) {
	text, err := OpenAPI(services.Definitions())
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenAPI(services.Definitions())
	if err != nil || again != text {
		t.Errorf("the document differs from one time to the next (%v)", err)
	}
	for _, path := range []string{"/api/v1/network/paths:", "/api/v1/sos/whitelist:", "/api/v1/events:", "/api/v1/status:", "/api/v1/gnrs/status:"} {
		if !strings.Contains(text, path) {
			t.Errorf("%s is not in the document", path)
		}
	}
}

// dump returns everything that a request could have changed.
func (r *running) dump(t *testing.T) string {
	t.Helper()
	entries, err := r.store.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&out, "%s@%d=%s\n", e.Key, e.Revision, e.Value)
	}
	for _, path := range []string{"config", "whitelist", "agents", "sessions"} {
		var v json.RawMessage
		r.get(t, "/api/v1/sos/"+path, &v)
		fmt.Fprintf(&out, "%s: %s\n", path, v)
	}
	return out.String()
}
