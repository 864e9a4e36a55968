package controller

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/pkitest"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/pki"
)

// TestCertificatesOpenWhatTheirRoleIs checks that a certificate is accepted only at the port of its
// role, and one without a role nowhere, unless the configuration maps its name to a role.
func TestCertificatesOpenWhatTheirRoleIs(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.Init(dir, "ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	trusting := func(name string, roles pki.Mapping) config.TLS {
		return config.TLS{Cert: file(name + ".crt"), Key: file(name + ".key"), CA: file(pki.CACertFile), Roles: roles}
	}
	for _, role := range pki.Roles() {
		pair, err := ca.Issue(pki.Request{Role: role, Name: "a-" + string(role), Hosts: []string{"127.0.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Write(dir, "a-"+string(role)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"nobody", "old-switch", "old-operator"} {
		pkitest.WithoutRole(t, dir, name)
	}
	cfg := testConfig(t, "memory")
	cfg.API.TLS = trusting("a-controller", pki.Mapping{"old-operator": pki.RoleOperator})
	cfg.OpenFlow.TLS = trusting("a-controller", pki.Mapping{"old-switch": pki.RoleSwitch})
	r := run(t, cfg)
	apiAddr, ofAddr := r.Addr()
	for _, c := range []struct {
		name          string
		api, openFlow bool
	}{
		{"a-operator", true, false},
		{"a-controller", true, false},
		{"a-switch", false, true},
		{"a-agent", false, false},
		{"a-neighbour", false, false},
		{"a-node", false, false},
		{"nobody", false, false},
		{"old-operator", true, false},
		{"old-switch", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf, err := pki.Client(pki.Files{Cert: file(c.name + ".crt"), Key: file(c.name + ".key"), CA: file(pki.CACertFile)}, pki.RoleController)
			if err != nil {
				t.Fatal(err)
			}
			cl, err := client.New(client.Options{Server: "https://" + apiAddr.String(), TLS: conf, Timeout: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			err = cl.Do(t.Context(), http.MethodGet, "/api/v1/network/switches", nil, nil)
			if p, refused := err.(*client.Problem); err != nil && (!refused || p.Status != http.StatusForbidden) { //nolint:errorlint // returned as it is
				t.Fatal(err)
			}
			if (err == nil) != c.api {
				t.Errorf("the API: %v, want success %v", err, c.api)
			}
			if err := greeting(ofAddr[0].String(), conf); (err == nil) != c.openFlow {
				t.Errorf("OpenFlow: %v, want success %v", err, c.openFlow)
			}
		})
	}
}

// greeting waits for the first message to a switch.
func greeting(addr string, conf *tls.Config) error {
	conn, err := tls.Dial("tcp", addr, conf)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	_, err = io.ReadFull(conn, make([]byte, 8))
	return err
}

// TestNodesHaveARoleOfTheirOwn checks that the controller accepts nodes only as nodes, and agents
// only as agents.
func TestNodesHaveARoleOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.Init(dir, "ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	files := func(role pki.Role) config.TLS {
		pair, err := ca.Issue(pki.Request{Role: role, Name: string(role), Hosts: []string{"127.0.0.1"}})
		if err == nil {
			err = pair.Write(dir, string(role))
		}
		if err != nil {
			t.Fatal(err)
		}
		file := func(end string) string { return filepath.Join(dir, string(role)+end) }
		return config.TLS{Cert: file(".crt"), Key: file(".key"), CA: filepath.Join(dir, pki.CACertFile)}
	}
	parts := kit.Parts{Config: &config.Controller{Agents: config.Agents{TLS: files(pki.RoleController)}}}
	for _, is := range []pki.Role{pki.RoleAgent, pki.RoleNode, pki.RoleController} {
		own, err := pki.Server(files(is).Files(), true, pki.RoleController)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.TLS, server.Config.ErrorLog = own, log.New(io.Discard, "", 0)
		server.StartTLS()
		for _, want := range []pki.Role{pki.RoleAgent, pki.RoleNode} {
			conf, err := parts.AgentTLS(want)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := tls.Dial("tcp", server.Listener.Addr().String(), conf)
			if (err == nil) != (is == want) {
				t.Errorf("a certificate of role %s for one of %s: %v", is, want, err)
			}
			if err == nil {
				conn.Close()
			}
		}
		server.Close()
	}
}
