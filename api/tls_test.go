package api_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/internal/pkitest"
	"github.com/sluice-net/sluice/pki"
)

func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.Init(dir, "ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	files := func(role pki.Role, name string) pki.Files {
		pair, err := ca.Issue(pki.Request{Role: role, Name: name, Hosts: []string{"127.0.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Write(dir, name); err != nil {
			t.Fatal(err)
		}
		return pki.Files{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, pki.CACertFile)}
	}
	roleless := func(name string) pki.Files {
		pkitest.WithoutRole(t, dir, name)
		return pki.Files{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, pki.CACertFile)}
	}
	serverTLS, err := pki.Server(files(pki.RoleController, "server"), false)
	if err != nil {
		t.Fatal(err)
	}
	auth := withToken()
	auth.ClientCerts, auth.Roles = true, pki.Mapping{"erin": pki.RoleOperator, "frank": pki.RoleAgent, "agent-4": pki.RoleOperator}
	a := api.New(api.Options{Auth: auth, Log: slog.New(slog.DiscardHandler)})
	for path, role := range map[string]bool{"/who": false, "/announce": false, "/role": true} {
		huma.Register(a.Huma(), huma.Operation{OperationID: path[1:], Method: http.MethodPost, Path: path},
			func(ctx context.Context, _ *struct{}) (*struct{ Body string }, error) {
				if role {
					return &struct{ Body string }{string(api.Role(ctx))}, nil
				}
				return &struct{ Body string }{api.Identity(ctx)}, nil
			})
	}
	a.Permit(pki.RoleNeighbour, http.MethodPost, "/role")
	a.Permit(pki.RoleAgent, http.MethodPost, "/announce")
	plain, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, tls.NewListener(plain, serverTLS)) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		name   string
		files  pki.Files
		token  string
		path   string
		status int
		who    string
	}{
		{"operator", files(pki.RoleOperator, "alice"), "", "/who", 200, "certificate:alice"},
		{"agent, not permitted", files(pki.RoleAgent, "agent-1"), "", "/who", 403, ""},
		{"agent with a token too", files(pki.RoleAgent, "agent-2"), secret, "/who", 403, ""},
		{"agent, permitted", files(pki.RoleAgent, "agent-3"), "", "/announce", 200, "certificate:agent-3"},
		{"neighbour, not permitted", files(pki.RoleNeighbour, "north"), "", "/announce", 403, ""},
		{"role of a neighbour", files(pki.RoleNeighbour, "south"), "", "/role", 200, "neighbour"},
		{"role of an operator", files(pki.RoleOperator, "bob"), "", "/role", 200, "operator"},
		{"node", files(pki.RoleNode, "depot-1"), "", "/announce", 403, ""},
		{"switch", files(pki.RoleSwitch, "edge-1"), "", "/announce", 403, ""},
		{"no role", roleless("carol"), "", "/who", 403, ""},
		{"no role, with a token too", roleless("dave"), secret, "/who", 403, ""},
		{"no role, mapped to operator", roleless("erin"), "", "/who", 200, "certificate:erin"},
		{"no role, mapped to agent", roleless("frank"), "", "/who", 403, ""},
		{"no role, mapped to agent, permitted", roleless("frank"), "", "/announce", 200, "certificate:frank"},
		{"a role that a mapping does not change", files(pki.RoleAgent, "agent-4"), "", "/who", 403, ""},
		{"nobody", pki.Files{CA: filepath.Join(dir, pki.CACertFile)}, "", "/who", 401, ""},
		{"token over TLS", pki.Files{CA: filepath.Join(dir, pki.CACertFile)}, secret, "/who", 200, "token:test"},
	} {
		t.Run(c.name, func(t *testing.T) {
			clientTLS, err := pki.Client(c.files)
			if err != nil {
				t.Fatal(err)
			}
			cl, err := client.New(client.Options{Server: "https://" + plain.Addr().String(), Token: c.token, TLS: clientTLS})
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			var who json.RawMessage
			err = cl.Do(t.Context(), http.MethodPost, c.path, nil, &who)
			status := 200
			if p, ok := err.(*client.Problem); ok {
				status = p.Status
			} else if err != nil {
				t.Fatal(err)
			}
			if status != c.status || c.who != "" && string(who) != `"`+c.who+`"` {
				t.Errorf("status %d, %s; want %d, %s", status, who, c.status, c.who)
			}
		})
	}
}

// A certificate that is revoked opens nothing more on connections that it has.
func TestRevokedWhileConnected(t *testing.T) {
	auth := withToken()
	auth.ClientCerts = true
	var revoked atomic.Bool
	auth.Revoked = func(cert *x509.Certificate) error {
		if revoked.Load() {
			return fmt.Errorf("%s was revoked", cert.Subject.CommonName)
		}
		return nil
	}
	a := api.New(api.Options{Auth: auth, Log: slog.New(slog.DiscardHandler)})
	ask := func() *httptest.ResponseRecorder {
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: "alice", Organization: []string{pki.Organization}, OrganizationalUnit: []string{string(pki.RoleOperator)}}}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/version", nil)
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
		r.Header.Set("Authorization", "Bearer "+secret) // does not make up for it
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, r)
		return w
	}
	if w := ask(); w.Code != http.StatusOK {
		t.Errorf("before: %d %s", w.Code, w.Body)
	}
	revoked.Store(true)
	if w := ask(); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "alice was revoked") {
		t.Errorf("after: %d %s", w.Code, w.Body)
	}
}
