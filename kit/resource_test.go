package kit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/store/memstore"
)

// numberSpec is a number as a request says it.
type numberSpec struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

// numberInfo is a number as answers show it.
type numberInfo struct {
	numberSpec
	Origin string `json:"origin"`
}

// TestResource checks the answers of all operations, and that a conditional change is made only if
// its condition holds.
func TestResource(t *testing.T) {
	s := newShelf(memstore.New())
	s.run(t, map[string]int{"fixed": 1})
	a := api.New(api.Options{Version: "test", Auth: api.Auth{Tokens: []api.Token{api.NewToken("test", "secret")}}, Bus: event.NewBus(1, 16)})
	numbers := Resource[int, numberSpec, numberInfo]{
		Collection: s.Collection, Path: "numbers", Field: "name",
		Parse: func(_ string, x numberSpec) (string, int, error) {
			var faults Faults
			faults.Check(x.N >= 0, "n", x.N, "no negative number")
			return x.Name, x.N, faults.Err()
		},
		Show: func(all []Item[int]) []numberInfo {
			out := []numberInfo{}
			for _, x := range all {
				out = append(out, numberInfo{numberSpec{x.Name, x.Value}, api.Origin(x.Configured)})
			}
			return out
		},
	}
	numbers.Register(NewREST(a, "shelf"))
	// The same numbers by their paths alone, and one that nobody declared.
	named := numbers
	named.Path, named.ByPath = "named", true
	named.Parse = func(name string, x numberSpec) (string, int, error) {
		var faults Faults
		faults.Check(len(name) < 8, "name", name, "a short one")
		return name, x.N, faults.Err()
	}
	stray := true
	named.Undeclared = func(_ context.Context, name string) error {
		if name != "stray" || !stray {
			return ErrUnknown
		}
		stray = false
		return nil
	}
	named.Register(NewREST(a, "shelf"))
	server := httptest.NewServer(a.Handler())
	defer server.Close()
	tags := map[string]string{}
	for _, step := range []struct {
		method, path, body, ifMatch string
		status                      int
		says                        string
	}{
		{"POST", "", `{"name":"a","n":1}`, "", 201, `"n":1`},
		{"POST", "", `{"name":"a","n":1}`, "", 409, "there is one already"},
		{"POST", "", `{"name":"b","n":-1}`, "", 422, "body.n"},
		{"GET", "", "", "", 200, `"fixed"`},
		{"GET", "/a", "", "", 200, `"origin":"api"`},
		{"GET", "?limit=1", "", "", 200, `[{"name":"a"`},
		{"GET", "?limit=1&after=a", "", "", 200, `[{"name":"fixed"`},
		{"GET", "?limit=0", "", "", 422, "limit"},
		{"GET", "/none", "", "", 404, "list them"},
		{"PUT", "/a", `{"name":"a","n":2}`, `"a"`, 200, `"n":2`},
		{"PUT", "/a", `{"name":"a","n":3}`, `"old"`, 412, "somebody else"},
		{"PUT", "/a", `{"name":"a","n":3}`, `rubbish`, 412, "somebody else"},
		{"PUT", "/a", `{"name":"b","n":3}`, "", 422, "body.name"},
		{"PUT", "/none", `{"name":"none","n":3}`, "", 404, "list them"},
		{"PUT", "/fixed", `{"name":"fixed","n":3}`, "*", 409, "configuration file"},
		{"DELETE", "/a", "", `"old"`, 412, "somebody else"},
		{"DELETE", "/a", "", `"a"`, 204, ""},
		{"DELETE", "/a", "", "", 404, "list them"},
		{"PUT", "/../named/c", `{"name":"","n":7}`, "", 200, `"n":7`},
		{"PUT", "/../named/c", `{"name":"","n":8}`, "*", 200, `"n":8`},
		{"PUT", "/../named/far-too-long", `{"name":"","n":8}`, "", 422, "path.name"},
		{"PUT", "/../named/fixed", `{"name":"","n":8}`, "", 409, "shelf.named.fixed"},
		{"POST", "/../named", `{"name":"c","n":8}`, "", 405, ""},
		{"DELETE", "/../named/stray", "", "", 204, ""},
		{"DELETE", "/../named/stray", "", "", 404, "list them"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), step.method, server.URL+path.Clean(api.Prefix+"/shelf/numbers"+step.path), strings.NewReader(step.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer secret")
		if step.body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		switch step.ifMatch {
		case "":
		case `"a"`:
			req.Header.Set("If-Match", tags["now"])
		case `"old"`:
			req.Header.Set("If-Match", tags["before"])
		default:
			req.Header.Set("If-Match", step.ifMatch)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var body strings.Builder
		var doc json.RawMessage
		if err := json.NewDecoder(resp.Body).Decode(&doc); err == nil {
			body.Write(doc)
		}
		resp.Body.Close()
		if resp.StatusCode != step.status || !strings.Contains(body.String(), step.says) {
			t.Errorf("%s %s %s: %d %s, want %d with %q", step.method, step.path, step.body, resp.StatusCode, body.String(), step.status, step.says)
		}
		if tag := resp.Header.Get("ETag"); tag != "" && tag != tags["now"] {
			tags["before"], tags["now"] = tags["now"], tag
		}
	}
	if tags["before"] == "" {
		t.Error("no entity tag has changed")
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestFaults checks that faults name the fields of the enclosing input.
func TestFaults(t *testing.T) {
	var f Faults
	f.Check(true, "fine", 0, "never")
	f.Check(false, "rate", 0, "at least %d", 1)
	f.Add("", "x", "something")
	if got := f.WithPrefix("a").WithPrefix("b").Error(); got != "b.a.rate: 0: want at least 1; b.a: x: want something" {
		t.Error(got)
	}
	if (Faults{}).Err() != nil || !errors.As(f.Err(), new(Faults)) {
		t.Error("faults as an error")
	}
}
