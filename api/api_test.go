package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "a-token-of-sufficient-length"

type thing struct {
	Name string `json:"name" minLength:"1"`
	Size int    `json:"size" minimum:"1" maximum:"9"`

	Tags   []string `json:"tags,omitempty"`
	Weight int64    `json:"weight,omitempty"`
}

type thingInput struct{ Body thing }

type thingsInput struct {
	Limit int    `query:"limit" minimum:"1" default:"3"`
	Host  string `query:"host" format:"ip-address"`
}

// start serves an API with one operation of a pretended service. changed counts
// how often it was reached.
func start(t *testing.T, auth api.Auth) (url string, changed *int, log *strings.Builder) {
	t.Helper()
	changed, log = new(int), new(strings.Builder)
	a := api.New(api.Options{
		Version: "test", Auth: auth, Bus: event.NewBus(1, 16), MaxBody: 4096,
		Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	huma.Register(a.Huma(), huma.Operation{OperationID: "thing-add", Method: http.MethodPost, Path: api.Prefix + "/things", Tags: []string{"things"}},
		func(ctx context.Context, in *thingInput) (*struct{ Body string }, error) {
			*changed++
			return &struct{ Body string }{api.Identity(ctx)}, nil
		})
	huma.Register(a.Huma(), huma.Operation{OperationID: "thing-break", Method: http.MethodPut, Path: api.Prefix + "/things"},
		func(context.Context, *struct{}) (*struct{}, error) { panic("broken " + secret[:3]) })
	huma.Register(a.Huma(), huma.Operation{OperationID: "things", Method: http.MethodGet, Path: api.Prefix + "/things"},
		func(context.Context, *thingsInput) (*struct{}, error) { return &struct{}{}, nil })
	for id, op := range map[string]huma.Operation{
		"all": {Method: http.MethodPost, Path: api.Prefix + "/things/all"}, "one": {Method: http.MethodDelete, Path: api.Prefix + "/things/{name}"},
	} {
		op.OperationID, op.DefaultStatus = id, http.StatusNoContent
		huma.Register(a.Huma(), op, func(context.Context, *struct{}) (*struct{}, error) { *changed++; return nil, nil })
	}
	a.AddCheck(api.Check{Name: "always", Run: func(context.Context) error { return nil }})
	s := httptest.NewServer(a.Handler())
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s.URL, changed, log
}

type answer struct {
	status int
	header http.Header
	body   string
}

func ask(t *testing.T, method, url, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func withToken() api.Auth { return api.Auth{Tokens: []api.Token{api.NewToken("test", secret)}} }

func TestWhoMayWhat(t *testing.T) {
	open := withToken()
	open.OpenReads = true
	const good = `{"name":"a","size":1}`
	bearer := "Bearer " + secret
	for _, c := range []struct {
		name         string
		auth         api.Auth
		method, path string
		header       []string
		want         int
	}{
		{"change with token", withToken(), "POST", "/api/v1/things", []string{"Authorization", bearer}, 200},
		{"change without token", withToken(), "POST", "/api/v1/things", nil, 401},
		{"change with a wrong token", withToken(), "POST", "/api/v1/things", []string{"Authorization", bearer + "x"}, 401},
		{"change with an empty token", withToken(), "POST", "/api/v1/things", []string{"Authorization", "Bearer "}, 401},
		{"change with another scheme", withToken(), "POST", "/api/v1/things", []string{"Authorization", "Basic " + secret}, 401},
		{"change where reads are open", open, "POST", "/api/v1/things", nil, 401},
		{"change when nothing is configured", api.Auth{}, "POST", "/api/v1/things", []string{"Authorization", "Bearer "}, 401},
		{"read without token", withToken(), "GET", "/api/v1/version", nil, 401},
		{"read with token", withToken(), "GET", "/api/v1/version", []string{"Authorization", bearer}, 200},
		{"open read", open, "GET", "/api/v1/version", nil, 200},
		{"open read under a foreign name", open, "GET", "/api/v1/version", []string{"Host", "evil.example"}, 401},
		{"open read with a wrong token", open, "GET", "/api/v1/version", []string{"Authorization", "Bearer x"}, 401},
		{"metrics without token", withToken(), "GET", "/metrics", nil, 401},
		{"metrics with token", withToken(), "GET", "/metrics", []string{"Authorization", bearer}, 200},
		{"events without token", withToken(), "GET", "/api/v1/events", nil, 401},
		{"unknown path without token", withToken(), "GET", "/etc/passwd", nil, 401},
		{"path out of the documentation", withToken(), "GET", "/docs/../metrics", nil, 401},
		{"health", withToken(), "GET", "/healthz", nil, 200},
		{"readiness", withToken(), "GET", "/readyz", nil, 200},
		{"document", withToken(), "GET", "/openapi.json", nil, 200},
		{"viewer", withToken(), "GET", "/docs", nil, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, changed, log := start(t, c.auth)
			got := ask(t, c.method, url+c.path, good, append(c.header, "Content-Type", "application/json")...)
			if got.status != c.want {
				t.Errorf("status %d, want %d: %s", got.status, c.want, got.body)
			}
			if wantChange := c.method == "POST" && c.want == 200; (*changed == 1) != wantChange {
				t.Errorf("the operation was reached %d times", *changed)
			}
			if c.want == 401 && (got.header.Get("WWW-Authenticate") == "" || got.header.Get("Content-Type") != "application/problem+json") {
				t.Errorf("header of the refusal: %v", got.header)
			}
			if c.method == "POST" && c.want == 200 && strings.TrimSpace(got.body) != `"token:test"` {
				t.Errorf("identity is %s", got.body)
			}
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log shows the token: %s", log)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		location, want           string
	}{
		{"no JSON", "POST", "/api/v1/things", "{", 400, "body", ""},
		{"empty body", "POST", "/api/v1/things", "", 400, "", "required"},
		{"list for an object", "POST", "/api/v1/things", "[]", 422, "body", "object"},
		{"missing field", "POST", "/api/v1/things", `{"name":"a"}`, 422, "body", "size"},
		{"unknown field", "POST", "/api/v1/things", `{"name":"a","size":1,"colour":2}`, 422, "body.colour", "unexpected property"},
		{"wrong type", "POST", "/api/v1/things", `{"name":"a","size":"big"}`, 422, "body.size", "integer"},
		{"out of range", "POST", "/api/v1/things", `{"name":"a","size":10}`, 422, "body.size", "<= 9"},
		{"too short", "POST", "/api/v1/things", `{"name":"","size":1}`, 422, "body.name", ">= 1"},
		{"unknown parameter", "GET", "/api/v1/version?x=1", "", 422, "query.x", "unknown"},
		{"wrong identifier", "GET", "/api/v1/events?after=x", "", 422, "query.after", "whole number"},
		{"unknown path", "GET", "/api/v1/thing", "", 404, "path", "/docs"},
		{"wrong method", "DELETE", "/api/v1/things", "", 405, "method", "POST"},
		{"too large", "POST", "/api/v1/things", `{"name":"` + strings.Repeat("a", 5000) + `"}`, 413, "", "4096"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, changed, _ := start(t, withToken())
			got := ask(t, c.method, url+c.path, c.body, "Authorization", "Bearer "+secret, "Content-Type", "application/json")
			var p huma.ErrorModel
			if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.header.Get("Content-Type") != "application/problem+json" {
				t.Fatalf("not a problem document: %v %s", got.header, got.body)
			}
			if got.status != c.status || p.Status != c.status || p.Title == "" {
				t.Errorf("status %d (%d in the document), want %d: %s", got.status, p.Status, c.status, got.body)
			}
			if *changed != 0 {
				t.Error("the operation was reached")
			}
			if c.location != "" && (len(p.Errors) != 1 || p.Errors[0].Location != c.location) {
				t.Errorf("location %q not named: %s", c.location, got.body)
			}
			if !strings.Contains(got.body, c.want) {
				t.Errorf("does not say %q: %s", c.want, got.body)
			}
		})
	}
}

func TestPanicIsAnswered(t *testing.T) {
	url, _, log := start(t, withToken())
	got := ask(t, "PUT", url+"/api/v1/things", "", "Authorization", "Bearer "+secret)
	if got.status != 500 || strings.Contains(got.body, "broken") {
		t.Errorf("answer %d: %s", got.status, got.body)
	}
	if !strings.Contains(log.String(), "broken") {
		t.Errorf("the log does not say why: %s", log)
	}
}

// The document must be complete and lead nowhere but to this server.
func TestDocumentAndViewer(t *testing.T) {
	url, _, _ := start(t, withToken())
	var doc struct {
		OpenAPI  string
		Security []map[string][]string
		Paths    map[string]map[string]any
	}
	got := ask(t, "GET", url+"/openapi.json", "")
	if err := json.Unmarshal([]byte(got.body), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || len(doc.Security) == 0 {
		t.Errorf("version %q, security %v", doc.OpenAPI, doc.Security)
	}
	for _, path := range []string{"/api/v1/things", "/api/v1/events", "/api/v1/version"} {
		if doc.Paths[path] == nil {
			t.Errorf("%s is not in the document", path)
		}
	}
	if yaml := ask(t, "GET", url+"/openapi.yaml", "").body; !strings.Contains(yaml, "openapi: 3.1") {
		t.Errorf("YAML form: %.100s", yaml)
	}
	external := regexp.MustCompile(`(?:src|href|import|fetch|url)\W{1,3}(?:https?:)?//`)
	for _, file := range []string{"", "viewer.js", "style.css"} {
		got := ask(t, "GET", url+"/docs/"+file, "")
		if got.status != 200 || !strings.Contains(got.header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("/docs/%s: %d %v", file, got.status, got.header)
		}
		if found := external.FindString(got.body); found != "" {
			t.Errorf("/docs/%s leads elsewhere: %s", file, found)
		}
	}
}

func TestReadiness(t *testing.T) {
	var log strings.Builder
	a := api.New(api.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	a.AddCheck(api.Check{Name: "store", Run: func(context.Context) error { return errors.New("details for the log") }})
	s := httptest.NewServer(a.Handler())
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	got := ask(t, "GET", s.URL+"/readyz", "")
	if got.status != 503 || !strings.Contains(got.body, `"store"`) || strings.Contains(got.body, "details") || !strings.Contains(log.String(), "details") {
		t.Errorf("%d %s; log: %s", got.status, got.body, &log)
	}
}

func TestMetrics(t *testing.T) {
	bus := event.NewBus(3, 16)
	bus.Publish("x", nil)
	a := api.New(api.Options{Auth: withToken(), Bus: bus, Log: slog.New(slog.DiscardHandler)})
	s := httptest.NewServer(a.Handler())
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	ask(t, "GET", s.URL+"/api/v1/version", "")
	stream := follow(t, s.URL+"/api/v1/events", "")
	got := ask(t, "GET", s.URL+"/metrics", "", "Authorization", "Bearer "+secret).body
	stream.Body.Close()
	for _, line := range []string{
		`sluice_api_requests_total{code="401",method="get"} 1`, "sluice_api_event_streams 1", fmt.Sprintf("sluice_event_last_id %v", float64(bus.Last())), "go_goroutines ",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("metrics lack %s", line)
		}
	}
}

func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run", "token")
	first, made, err := api.LoadToken("local", file)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	second, made, err := api.LoadToken("local", file)
	if err != nil || made || first != second {
		t.Errorf("read again: made %v, same %v, %v", made, first == second, err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := api.LoadToken("local", file); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("readable by everybody: %v", err)
	}
	if err := os.WriteFile(file, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := api.LoadToken("local", file); err == nil || !strings.Contains(err.Error(), "at least 20") {
		t.Errorf("short token: %v", err)
	}
}

func TestRunStopsWithOpenStreams(t *testing.T) {
	bus := event.NewBus(1, 16)
	a := api.New(api.Options{Auth: withToken(), Bus: bus, Log: slog.New(slog.DiscardHandler)})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, l) }()
	resp := follow(t, "http://"+l.Addr().String()+"/api/v1/events", "")
	defer resp.Body.Close()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run does not return")
	}
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the stream was cut instead of ended: %v", err)
	}
}
