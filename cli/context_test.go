package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/pki"
)

// asked starts a controller that answers with the identity of the client.
func asked(t *testing.T, dir string, ca *pki.CA) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := "a stranger"
		if len(r.TLS.PeerCertificates) > 0 {
			who = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"title":"Forbidden","status":403,"detail":"%s with %q"}`, who, r.Header.Get("Authorization"))
	}))
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "controller.crt"), filepath.Join(dir, "controller.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func TestContexts(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "home", "contexts.yaml")
	t.Setenv(commands.ContextsVariable, file)
	ca, err := pki.Init(dir, "ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]pki.Role{"controller": pki.RoleController, "alice": pki.RoleOperator} {
		pair, err := ca.Issue(pki.Request{Role: role, Name: name, Hosts: []string{"127.0.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Write(dir, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	server := asked(t, dir, ca)
	steps := []struct {
		env   string // SLUICE_ before it
		args  string
		code  int
		wants string
	}{
		{"", "context list", command.ExitOK, "NAME"},
		{"", "status --context campus", command.ExitFailed, `no context "campus": "sluice context add"`},
		{"", "context add campus", command.ExitUsage, "--server is missing"},
		{"", "context add a/b --server https://x", command.ExitUsage, "letters"},
		{"", "context add campus --server localhost", command.ExitFailed, "https://"},
		{"", "context add campus --server " + server + " --ca nowhere.crt", command.ExitFailed, "nowhere.crt"},
		{"", "context add campus --server " + server + " --ca ca.crt --cert alice.crt", command.ExitFailed, "belong together"},
		{"", "context add campus --server " + server + " --ca ca.crt --cert alice.crt --key alice.key", command.ExitOK, "current is campus"},
		{"", "context add campus --server " + server, command.ExitFailed, "already exists"},
		{"", "context add robot --server " + server + " --ca ca.crt --token-file token", command.ExitOK, "current is campus"},
		{"", "context add other --server https://127.0.0.1:1 --ca ca.crt", command.ExitOK, "added"},
		{"", "context list", command.ExitOK, filepath.Join(dir, "alice.crt")},
		// The current one, another one, and flags over it.
		{"", "status", command.ExitRefused, `alice with ""`},
		{"", "status --context robot", command.ExitRefused, `a stranger with "Bearer secret"`},
		{"CONTEXT=robot", "status", command.ExitRefused, `a stranger with "Bearer secret"`},
		{"CONTEXT=robot", "status --context campus", command.ExitRefused, `alice with ""`},
		{"", "status --context other --server " + server, command.ExitRefused, `a stranger with ""`},
		// What was left in the environment does not go to another controller.
		{"SERVER=" + server, "status --context other", command.ExitUnreachable, "127.0.0.1:1"},
		{"TOKEN=left", "status --context campus", command.ExitRefused, `alice with ""`},
		{"TOKEN_FILE=token", "status --context campus", command.ExitRefused, `alice with ""`},
		// Nor does the current one's certificate.
		{"", "status --server " + server + " --ca ca.crt", command.ExitRefused, `a stranger with ""`},
		{"SERVER=" + server, "status --ca ca.crt", command.ExitRefused, `a stranger with ""`},
		{"", "context use robot", command.ExitOK, "robot"},
		{"", "status", command.ExitRefused, `a stranger with "Bearer secret"`},
		{"", "context remove robot", command.ExitOK, "removed"},
		{"", "context use robot", command.ExitFailed, "it has campus, other"},
		{"SERVER=https://127.0.0.1:1", "status", command.ExitUnreachable, "127.0.0.1:1"},
	}
	for _, s := range steps {
		t.Run(strings.ReplaceAll(s.env+" "+s.args, "/", "_"), func(t *testing.T) {
			if name, value, ok := strings.Cut(s.env, "="); ok {
				t.Setenv("SLUICE_"+name, value)
			}
			code, out, errOut := sluice(t, strings.Fields(s.args)...)
			if code != s.code || !strings.Contains(out+errOut, s.wants) {
				t.Errorf("exit code %d, want %d and %q:\n%s%s", code, s.code, s.wants, out, errOut)
			}
		})
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
}
