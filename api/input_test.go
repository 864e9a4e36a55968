package api_test

import (
	"strings"
	"testing"
)

// What encoding/json and huma would take for something else is refused, and a whole
// number may be written with a fraction of zero.
func TestInputIsReadAsDescribed(t *testing.T) {
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		want                     string
	}{
		{"null", "POST", "/api/v1/things", `{"name":null,"size":1}`, 400, "body.name is null"},
		{"null inside a list", "POST", "/api/v1/things", `{"name":"a","size":1,"tags":["x",null]}`, 400, "body.tags[1] is null"},
		{"null alone", "POST", "/api/v1/things", `null`, 400, "body is null"},
		{"deeply nested", "POST", "/api/v1/things", strings.Repeat("[", 40) + strings.Repeat("]", 40), 400, "more than 32 levels"},
		{"a very long key", "POST", "/api/v1/things", `{"` + strings.Repeat("k", 2000) + `":[1]}`, 400, "a key of 2000 bytes"},
		{"two documents", "POST", "/api/v1/things", `{"name":"a","size":1} {}`, 400, "after top-level value"},
		{"whole number with a fraction", "POST", "/api/v1/things", `{"name":"a","size":3.0}`, 200, ""},
		{"whole number with an exponent", "POST", "/api/v1/things", `{"name":"a","size":0.3e1}`, 200, ""},
		{"number beyond all whole numbers", "POST", "/api/v1/things", `{"name":"a","size":1,"weight":1e30}`, 422, "body.weight"},
		{"half a number", "POST", "/api/v1/things", `{"name":"a","size":1.5}`, 422, "integer"},
		{"list", "POST", "/api/v1/things", `{"name":"a","size":1,"tags":["x"]}`, 200, ""},
		{"parameter without a value", "GET", "/api/v1/things?limit=", "", 422, "query.limit"},
		{"parameter twice", "GET", "/api/v1/things?limit=1&limit=2", "", 422, "once"},
		{"query that cannot be read", "GET", "/api/v1/things?limit=%zz", "", 422, "%XX"},
		{"text without a value", "GET", "/api/v1/things?host=", "", 204, ""},
		{"text of another format", "GET", "/api/v1/things?host=a", "", 422, "IP address like"},
		{"text of its format", "GET", "/api/v1/things?host=2001:db8::1", "", 204, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, _, _ := start(t, withToken())
			got := ask(t, c.method, url+c.path, c.body, "Authorization", "Bearer "+secret, "Content-Type", "application/json")
			if got.status != c.status || !strings.Contains(got.body, c.want) {
				t.Errorf("%d %s, want %d and %q", got.status, got.body, c.status, c.want)
			}
		})
	}
}

// A path offers its own methods only, not those of a more general one.
func TestAllowIsOfThePath(t *testing.T) {
	url, changed, _ := start(t, withToken())
	for _, c := range []struct{ method, path, allow string }{
		{"OPTIONS", "/api/v1/things/all", "POST"},
		{"DELETE", "/api/v1/things/all", "POST"},
		{"OPTIONS", "/api/v1/things/one", "DELETE"},
		{"TRACE", "/api/v1/things", "GET, HEAD, POST, PUT"},
	} {
		got := ask(t, c.method, url+c.path, "", "Authorization", "Bearer "+secret)
		if got.status != 405 || got.header.Get("Allow") != c.allow || !strings.Contains(got.body, c.allow) {
			t.Errorf("%s %s: %d, Allow %q, want 405 and %q", c.method, c.path, got.status, got.header.Get("Allow"), c.allow)
		}
	}
	if *changed != 0 {
		t.Error("an operation was reached")
	}
	if got := ask(t, "HEAD", url+"/api/v1/things", "", "Authorization", "Bearer "+secret); got.status != 204 {
		t.Errorf("HEAD where GET is: %d", got.status)
	}
}
