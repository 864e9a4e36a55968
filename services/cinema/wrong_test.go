package cinema

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// with returns a request with one field replaced; nil removes it.
func with(good map[string]any, field string, value any) string {
	out := map[string]any{}
	for k, v := range good {
		out[k] = v
	}
	if out[field] = value; value == nil {
		delete(out, field)
	}
	b, _ := json.Marshal(out)
	return string(b)
}

// TestWrongInput checks that every kind of invalid input is refused with the field, and changes
// nothing.
func TestWrongInput(t *testing.T) {
	b := newBench(t)
	good := map[string]any{"name": "c", "number": 3, "bit_rate": "2Mbit"}
	channel := func(field string, value any) string { return with(good, field, value) }
	asked := map[string]any{"gateway": "east", "viewer": id(1), "port": 6000, "channels": []string{"a"}}
	wanted := func(field string, value any) string { return with(asked, field, value) }
	gateway := map[string]any{"name": "z", "url": "https://192.0.2.7:8440", "addrs": []string{"10.0.0.77"}}
	for _, c := range []struct {
		method, path, body string
		status             int
		field              string
	}{
		{"POST", "channels", channel("name", "Upper"), 422, "body.name"},
		{"POST", "channels", channel("name", nil), 422, "body"},
		{"POST", "channels", channel("name", strings.Repeat("x", 64)), 422, "body.name"},
		{"POST", "channels", channel("name", "a"), 409, "body.name"},
		{"POST", "channels", channel("number", 0), 422, "body.number"},
		{"POST", "channels", channel("number", 10000), 422, "body.number"},
		{"POST", "channels", channel("number", 2), 422, "body.number"},
		{"POST", "channels", channel("bit_rate", "fast"), 422, "body.bit_rate"},
		{"POST", "channels", channel("bit_rate", "99999bit"), 422, "body.bit_rate"},
		{"POST", "channels", channel("bit_rate", "1000000001bit"), 422, "body.bit_rate"},
		{"POST", "channels", channel("picture", "4k"), 422, "body.picture"},
		{"POST", "channels", channel("title", "two\nlines"), 422, "body.title"},
		{"POST", "channels", channel("title", strings.Repeat("x", 129)), 422, "body.title"},
		{"POST", "channels", channel("source", "http://10.0.0.1/x"), 422, "body.source"},
		{"POST", "channels", channel("source", "file:relative"), 422, "body.source"},
		{"POST", "channels", channel("source", "file:/a/../b"), 422, "body.source"},
		{"POST", "channels", channel("source", "rtsp:///path"), 422, "body.source"},
		{"POST", "channels", channel("source", "rtsp://10.0.0.7/x?token=…"), 422, "body.source"},
		{"POST", "channels", channel("source", "udp://10.0.0.1:5000 -vf x"), 422, "body.source"},
		{"POST", "channels", channel("ingress", strings.Repeat("x", 64)), 422, "body.ingress"},
		{"POST", "channels", channel("view_password", strings.Repeat("x", 73)), 422, "body.view_password"},
		{"POST", "channels", channel("view_password", strings.Repeat("ü", 40)), 422, "body.view_password"},
		{"POST", "channels", channel("view_hash", "x"), 422, "body.view_hash"},
		{"PUT", "channels/a", with(good, "name", "a"), 409, "path.name"}, // of the configuration file
		{"PUT", "channels/gone", with(good, "name", "gone"), 404, "path.name"},
		{"DELETE", "channels/a", "", 409, "path.name"},
		{"DELETE", "channels/gone", "", 404, "path.name"},
		{"GET", "channels/gone", "", 404, "path.name"},
		{"POST", "wanted", wanted("gateway", "north"), 422, "body.gateway"},
		{"POST", "wanted", wanted("gateway", nil), 422, "body"},
		{"POST", "wanted", wanted("viewer", "me"), 422, "body.viewer"},
		{"POST", "wanted", wanted("viewer", strings.ToUpper(id(0xabc))), 422, "body.viewer"},
		{"POST", "wanted", wanted("port", 80), 422, "body.port"},
		{"POST", "wanted", wanted("port", 70000), 422, "body.port"},
		{"POST", "wanted", wanted("channels", []string{"a", "b", "c"}), 422, "body.channels"},
		{"POST", "wanted", wanted("channels", []string{"a", "a"}), 422, "body.channels[1]"},
		{"POST", "wanted", wanted("channels", []string{"gone"}), 422, "body.channels[0]"},
		{"POST", "wanted", wanted("channels", nil), 422, "body"},
		{"POST", "wanted", wanted("channels", "a"), 422, "body.channels"},
		{"POST", "wanted", wanted("password", strings.Repeat("x", 73)), 422, "body.password"},
		{"POST", "wanted", wanted("password", strings.Repeat("ü", 40)), 422, "body.password"},
		{"POST", "wanted", wanted("speed", 1), 422, "body.speed"},
		{"POST", "wanted", "{", 400, ""},
		{"DELETE", "viewers/me", "", 422, "path.id"},
		{"DELETE", "viewers/" + id(9), "", 404, "path.id"},
		{"POST", "egress/agents", with(gateway, "url", "http://192.0.2.7:1"), 422, "body.url"},
		{"POST", "ingress/agents", with(gateway, "addrs", []string{"224.0.0.1"}), 422, "body.addrs[0]"},
		{"POST", "egress/agents", with(gateway, "name", "east"), 409, "body.name"},
	} {
		if status, body := b.ask(c.method, c.path, c.body); status != c.status || !strings.Contains(body, c.field) {
			t.Errorf("%s %s %s: %d %s, want %d and %s", c.method, c.path, c.body, status, body, c.status, c.field)
		}
	}
	if n := len(b.service.Channels.Items()); n != 2 || !b.onlyGuards() || len(b.service.viewers.list()) > 0 {
		t.Errorf("%d channels, rules of %v", n, b.ledger.Keys())
	}
}

// TestWhoMay checks that a gateway can act only in its own name, and has no other permissions.
func TestWhoMay(t *testing.T) {
	b := newBench(t)
	body := func(gateway string) string {
		return fmt.Sprintf(`{"gateway": %q, "viewer": %q, "port": 6000, "channels": ["a"]}`, gateway, id(1))
	}
	for _, c := range []struct {
		who, method, path, body string
		status                  int
	}{
		{"east", "POST", "wanted", body("east"), http.StatusOK},
		{"east", "POST", "wanted", body("west"), http.StatusForbidden},
		{"stranger", "POST", "wanted", body("east"), http.StatusForbidden},
		{"stranger", "POST", "wanted", body("stranger"), http.StatusUnprocessableEntity},
		{"east", "GET", "lineup", "", http.StatusOK},
		{"east", "GET", "channels", "", http.StatusForbidden},
		{"east", "GET", "viewers", "", http.StatusForbidden},
		{"east", "DELETE", "viewers/" + id(1), "", http.StatusForbidden},
		{"east", "POST", "channels", `{}`, http.StatusForbidden},
	} {
		if status, text := b.asAgent(c.who, c.method, c.path, c.body); status != c.status {
			t.Errorf("%s: %s %s %s: %d %s, want %d", c.who, c.method, c.path, c.body, status, text, c.status)
		}
	}
}

// TestChannels checks that channels are shown as declared, without secrets, and can be changed
// by PUT.
func TestChannels(t *testing.T) {
	b := newBench(t)
	const spec = `{"name": "c", "number": 3, "title": "C", "bit_rate": "2Mbit", "source": "rtsp://me:hush@10.0.0.7/x?token=hush", "view_password": "one", "publish_password": "two"}`
	if status, body := b.ask("POST", "channels", spec); status != http.StatusCreated || strings.Contains(body, "hush") || strings.Contains(body, "$2") {
		t.Fatalf("%d %s", status, body)
	}
	wrong := strings.NewReplacer(`"c"`, `"d"`, ": 3", ": 4", "10.0.0.7", "").Replace(spec)
	if status, body := b.ask("POST", "channels", wrong); status != http.StatusUnprocessableEntity || strings.Contains(body, "hush") {
		t.Errorf("%d %s", status, body)
	}
	b.mustWant(b.east, 1, 6000, "a")
	c := get[ChannelInfo](b, "channels/c")
	if c.Title != "C" || !c.ViewPassword || !c.PublishPassword || c.Source != "rtsp://…@10.0.0.7/x?token=…" || c.Origin != "api" || c.At != "studio" {
		t.Errorf("%+v", c)
	}
	if status, body := b.ask("PUT", "channels/c", `{"name": "c", "number": 4, "bit_rate": "3Mbit"}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	if c := get[ChannelInfo](b, "channels/c"); c.Number != 4 || c.ViewPassword || c.Title != "c" || c.Source != "" {
		t.Errorf("%+v", c)
	}
	b.eventually("the ingress gateway has it so", func() bool {
		for _, x := range b.studio.list() {
			if x.Name == "c" && x.Number == 4 && x.PublishHash == "" && x.To == DefaultMedia {
				return true
			}
		}
		return false
	})
	if status, body := b.ask("PUT", "channels/c", `{"name": "c", "number": 4, "bit_rate": "3Mbit", "ingress": "nowhere"}`); status != http.StatusOK || !strings.Contains(body, "nowhere") {
		t.Fatalf("%d %s", status, body)
	}
	if why := b.trouble("c"); !strings.Contains(why, `ingress gateway "nowhere"`) {
		t.Errorf("trouble %q", why)
	}
}
