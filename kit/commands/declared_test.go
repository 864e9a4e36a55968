package commands

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
)

// thing has a field of each kind.
type thing struct {
	Name  string     `json:"name"`
	Host  netip.Addr `json:"host" doc:"Its address"`
	Max   int        `json:"max_sessions,omitempty"`
	Fast  bool       `json:"fast,omitempty"`
	Ports []string   `json:"ports,omitempty"`
}

type thingInfo struct {
	thing
	Trouble string `json:"trouble,omitempty"`
}

// things runs a command for things against a server, and returns its exit code and output.
func things(t *testing.T, server string, args ...string) (code int, out string) {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	app := &App{Output: command.Output{Out: &text, Err: &text}}
	root, group := &cobra.Command{Use: "sluice"}, &cobra.Command{Use: "things"}
	app.Flags(root.PersistentFlags())
	group.AddCommand(DeclaredCommands[thing, thingInfo](app, "a thing", "/things")...)
	root.AddCommand(group)
	command.Finish(root, &app.Output, command.Docs{})
	args = append([]string{"things", "--server", server, "--token-file", token}, args...)
	code = command.Run(t.Context(), root, &app.Output, args)
	return code, text.String()
}

// TestDeclaredCommands checks that flags and columns follow from the fields of declared items.
func TestDeclaredCommands(t *testing.T) {
	var method, path, body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		method, path, body = r.Method, r.URL.Path, string(b)
		w.Header().Set("Content-Type", "application/json")
		one := thingInfo{thing{Name: "a", Host: netip.MustParseAddr("10.0.0.1"), Max: 5, Ports: []string{"1", "2"}}, "none"}
		switch {
		case method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case method == http.MethodGet && path == "/things":
			_ = json.NewEncoder(w).Encode([]thingInfo{one})
		default:
			_ = json.NewEncoder(w).Encode(one)
		}
	}))
	defer server.Close()
	const table = "NAME HOST MAX SESSIONS FAST PORTS TROUBLE a 10.0.0.1 5 - 1, 2 none"
	for _, c := range []struct{ line, method, path, body, out string }{
		{"list", "GET", "/things", "", table},
		{"show a/b", "GET", "/things/a/b", "", "name a host 10.0.0.1 max sessions 5 ports 1, 2 trouble none"},
		{"add b --host 10.0.0.2 --max-sessions 7 --fast --ports 1 --ports 2", "POST", "/things", `{"fast":true,"host":"10.0.0.2","max_sessions":7,"name":"b","ports":["1","2"]}`, table},
		{"set b --host 10.0.0.3", "PUT", "/things/b", `{"host":"10.0.0.3","name":"b"}`, table},
		{"remove b", "DELETE", "/things/b", "", ""},
	} {
		code, out := things(t, server.URL, strings.Fields(c.line)...)
		if code != command.ExitOK {
			t.Fatalf("%s: exit code %d, %s", c.line, code, out)
		}
		if method != c.method || path != c.path || strings.TrimSpace(body) != c.body || strings.Join(strings.Fields(out), " ") != c.out {
			t.Errorf("%s: %s %s %s, prints %q", c.line, method, path, body, out)
		}
	}
}

// TestRefusalNamesFlags checks that a refusal names the flags that the user has typed instead of
// the request's fields.
func TestRefusalNamesFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "thing.json")
	if err := os.WriteFile(file, []byte(`{"fast": 7}`), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"title":"Unprocessable Entity","status":422,"detail":"validation failed","errors":[
			{"message":"expected number <= 5","location":"body.max_sessions","value":7},
			{"message":"expected string","location":"body.ports[1]","value":""},
			{"message":"expected boolean","location":"body.fast","value":7},
			{"message":"expected required property host to be present","location":"body","value":{"max_sessions":7}}]}`)
	}))
	defer server.Close()
	code, out := things(t, server.URL, "add", "b", "--max-sessions", "7", "--ports", "1", "--ports", "x", "--file", file)
	if code != command.ExitRefused {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"--max-sessions = 7: expected number <= 5", `--ports[1] = "": expected string`, "body.fast = 7: expected boolean", "--host: is required"} {
		if !strings.Contains(out, want) {
			t.Errorf("does not say %q:\n%s", want, out)
		}
	}
}
