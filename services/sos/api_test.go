package sos

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
)

// restBench is a bench with the service's API over HTTP.
type restBench struct {
	*bench
	url string
}

func newRestBench(t *testing.T) *restBench {
	b := &restBench{bench: newBench(t)}
	b.serve()
	return b
}

// serve offers the API of the bench's present service.
func (b *restBench) serve() {
	a := api.New(api.Options{Auth: api.Auth{Tokens: []api.Token{api.NewToken("test", "secret")}}})
	b.service.Register(a)
	server := httptest.NewServer(a.Handler())
	b.t.Cleanup(server.Close)
	b.url = server.URL
}

// ask makes a request and returns status and body.
func (b *restBench) ask(method, path, body string) (int, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+"/api/v1/sos/"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestWrongInput sends every kind of invalid input, and checks that it is refused with the name of
// the field, and that nothing changes.
func TestWrongInput(t *testing.T) {
	b := newRestBench(t)
	good := map[string]any{"clients": []string{"10.0.0.0/24"}, "servers": []string{"10.1.0.1"}, "ports": []string{"80"}}
	entry := func(field string, value any) string { return with(good, field, value) }
	agent := map[string]any{"name": "z", "url": "https://192.0.2.7:8440", "addrs": []string{"10.0.0.77"}}
	spec := func(field string, value any) string { return with(agent, field, value) }
	cases := []struct {
		method, path, body string
		status             int
		field              string
	}{
		{"POST", "whitelist", entry("clients", []string{}), 422, "body.clients"},
		{"POST", "whitelist", entry("clients", []string{"office"}), 422, "body.clients[0]"},
		{"POST", "whitelist", entry("clients", []string{"10.0.0.1/24"}), 422, "body.clients[0]"},
		{"POST", "whitelist", entry("servers", []string{"224.0.0.5"}), 422, "body.servers[0]"},
		{"POST", "whitelist", entry("servers", []string{"2001:db8::1"}), 422, "body.servers"},
		{"POST", "whitelist", entry("ports", []string{"0"}), 422, "body.ports[0]"},
		{"POST", "whitelist", entry("ports", []string{"9-8"}), 422, "body.ports[0]"},
		{"POST", "whitelist", entry("ports", []string{"http"}), 422, "body.ports[0]"},
		{"POST", "whitelist", entry("ports", 80), 422, "body.ports"},
		{"POST", "whitelist", entry("port", []string{"80"}), 422, "body.port"},
		{"POST", "whitelist", entry("stop", "2001-01-01T00:00:00"), 422, "body.stop"},
		{"POST", "whitelist", entry("tuning", map[string]any{"connections": 65}), 422, "body.tuning.connections"},
		{"POST", "whitelist", entry("tuning", map[string]any{"transport": "pigeon"}), 422, "body.tuning.transport"},
		{"POST", "whitelist", entry("tuning", map[string]any{"chunk_bytes": 5}), 422, "body.tuning.chunk_bytes"},
		{"POST", "whitelist", entry("stop", "2001-01-01T00:00:00Z"), 422, "body.stop"},
		{"POST", "whitelist", entry("clients", []string{"10.0.0.1", "10.0.0.1"}), 422, "body.clients[1]"},
		{"POST", "whitelist", `{"clients":["10.0.0.0/24"],"servers":["10.0.0.0/24"],"ports":["80"]}`, 409, "body"},
		{"POST", "whitelist", "{", 400, ""},
		{"DELETE", "whitelist/nothing", "", 404, "path.name"},
		{"POST", "agents", spec("name", "Big Name"), 422, "body.name"},
		{"POST", "agents", spec("url", "192.0.2.7"), 422, "body.url"},
		{"POST", "agents", spec("url", "http://192.0.2.7:8440"), 422, "body.url"},
		{"POST", "agents", spec("url", "https://u:p@192.0.2.7:8440"), 422, "body.url"},
		{"POST", "agents", spec("addrs", []string{}), 422, "body.addrs"},
		{"POST", "agents", spec("addrs", []string{"127.0.0.1"}), 422, "body.addrs[0]"},
		{"POST", "agents", spec("addrs", []string{"10.0.0.1", "10.0.0.2"}), 422, "body.addrs[1]"},
		{"POST", "agents", spec("max_sessions", -1), 422, "body.max_sessions"},
		{"POST", "agents", spec("addrs", []string{agentX.Addr().String()}), 409, "body.name"},
		{"POST", "agents", spec("name", "x"), 409, "body.name"},
		{"DELETE", "agents/nobody", "", 404, "path.name"},
		{"POST", "agents/nobody/drain", `{"on":true}`, 404, "path.name"},
		{"PATCH", "config", `{"metric":"distance"}`, 422, "body.metric"},
		{"PATCH", "config", `{"balance":"luck"}`, 422, "body.balance"},
		{"PATCH", "config", `{"idle":"5"}`, 422, "body.idle"},
		{"PATCH", "config", `{"idle":"1s"}`, 422, "body.idle"},
		{"PATCH", "config", `{"silent_after":"10ms"}`, 422, "body.silent_after"},
		{"PATCH", "config", `{"max_setups":0}`, 422, "body.max_setups"},
		{"PATCH", "config", `{"history":-1}`, 422, "body.history"},
		{"PATCH", "config", `{"enable":true}`, 422, "body.enable"},
		{"PATCH", "config", `{"enabled":"yes"}`, 422, "body.enabled"},
		{"GET", "sessions?state=dead", "", 422, "query.state"},
		{"GET", "sessions?limit=0", "", 422, "query.limit"},
		{"GET", "sessions/xyz", "", 404, "path.id"},
		{"DELETE", "sessions/xyz", "", 404, "path.id"},
	}
	before := b.state()
	for _, c := range cases {
		status, body := b.ask(c.method, c.path, c.body)
		if status != c.status || c.field != "" && !strings.Contains(body, fmt.Sprintf("%q", c.field)) {
			t.Errorf("%s %s %s: %d %s, want %d naming %q", c.method, c.path, c.body, status, body, c.status, c.field)
		}
	}
	if after := b.state(); after != before {
		t.Errorf("state after refusals\n%s\nwant\n%s", after, before)
	}
}

// with returns a JSON object with one field changed.
func with(object map[string]any, field string, value any) string {
	changed := map[string]any{}
	for k, v := range object {
		changed[k] = v
	}
	changed[field] = value
	b, err := json.Marshal(changed)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// state returns everything that an operator can change.
func (b *restBench) state() string {
	_, config := b.ask("GET", "config", "")
	_, whitelist := b.ask("GET", "whitelist", "")
	entries, err := b.store.List(b.t.Context(), "sos/")
	if err != nil {
		b.t.Fatal(err)
	}
	text := config + whitelist
	for _, e := range entries {
		text += e.Key + string(e.Value)
	}
	return text
}

// TestOperations performs everything that an operator does, and a restart.
func TestOperations(t *testing.T) {
	b := newRestBench(t)
	must := func(method, path, body string, want ...string) string {
		t.Helper()
		status, text := b.ask(method, path, body)
		if status/100 != 2 {
			t.Fatalf("%s %s: %d %s", method, path, status, text)
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s %s: %s, want %s in it", method, path, text, w)
			}
		}
		return text
	}
	must("PATCH", "config", `{"metric":"hops","tuning":{"connections":4},"idle":"30m"}`, `"metric":"hops"`, `"connections":4`, `"idle":"30m0s"`)
	var e Entry
	text := must("POST", "whitelist", `{"clients":["10.3.0.0/16"],"servers":["10.4.0.1"],"ports":["443","8000-8099"],"tuning":{"paths":2}}`, `"8000-8099"`)
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	must("POST", "agents/x/drain", `{"on":true}`, `"draining":true`)
	if _, held := b.syn(hostA); b.fate(held) != "forwarded" {
		t.Error("a draining agent got a session")
	}
	must("POST", "agents/x/drain", `{"on":false}`)
	must("POST", "disable", "", `"enabled":false`)
	b.stop()
	b.start()
	b.serve()
	b.agentsUp()
	must("GET", "config", "", `"metric":"hops"`, `"enabled":false`)
	must("GET", "whitelist", "", e.ID)
	must("DELETE", "whitelist/"+e.ID, "")
	must("POST", "enable", "", `"enabled":true`)
	must("GET", "status", "", `"agents_up":2`, `"errors":[]`)
	must("GET", "stats", "", `"live":[]`)
	must("DELETE", "agents/y", "")
	must("GET", "agents", "", `"name":"x"`)
}
