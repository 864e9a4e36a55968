package controller

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
)

// TestRevocationEndsConnections checks that revoking a certificate ends its holder's connections
// and refuses new ones: the session of a switch, and the connections of an agent, a neighbour or an
// operator to the API. Others go on.
func TestRevocationEndsConnections(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.Init(dir, "ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	holder := func(role pki.Role, name string) *tls.Config {
		pair, err := ca.Issue(pki.Request{Role: role, Name: name, Hosts: []string{"127.0.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Write(dir, name); err != nil {
			t.Fatal(err)
		}
		conf, err := pki.Client(pki.Files{Cert: file(name + ".crt"), Key: file(name + ".key"), CA: file(pki.CACertFile)}, pki.RoleController)
		if err != nil {
			t.Fatal(err)
		}
		return conf
	}
	revoke := func(name string) {
		cert, err := pki.ReadCert(file(name + ".crt"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ca.Revoke(dir, cert.SerialNumber); err != nil {
			t.Fatal(err)
		}
	}
	holder(pki.RoleController, "server")
	cfg := testConfig(t, "memory")
	cfg.API.TLS = config.TLS{Cert: file("server.crt"), Key: file("server.key"), CA: file(pki.CACertFile)}
	cfg.OpenFlow.TLS = cfg.API.TLS
	r := run(t, cfg)
	apiAddr, ofAddr := r.Addr()

	t.Run("switch", func(t *testing.T) {
		good, bad := holder(pki.RoleSwitch, "good"), holder(pki.RoleSwitch, "bad")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make([]chan error, 2)
		defer func() {
			cancel()
			<-ended[0]
		}()
		for i, conf := range []*tls.Config{good, bad} {
			conn, err := tls.Dial("tcp", ofAddr[0].String(), conf)
			if err != nil {
				t.Fatal(err)
			}
			s, done := fake.NewSwitch(fake.Options{DPID: openflow.DatapathID(i + 1), Ports: 1}), make(chan error, 1)
			go func() { done <- s.Run(ctx, conn) }()
			ended[i] = done
		}
		up := func(d openflow.DatapathID) bool {
			_, is := r.Network().Switch(d)
			return is
		}
		eventually(t, "both switches are up", func() bool { return up(1) && up(2) })
		revoke("bad")
		eventually(t, "the session of the revoked one ended", func() bool { return !up(2) })
		<-ended[1]
		if !up(1) {
			t.Error("the other one's ended too")
		}
		eventually(t, "the log says why", func() bool { return strings.Contains(r.log.String(), "was revoked") })
		if err := greeting(ofAddr[0].String(), bad); err == nil {
			t.Error("it is let in again")
		}
	})
	for _, role := range []pki.Role{pki.RoleAgent, pki.RoleNeighbour, pki.RoleOperator, pki.RoleNode} {
		t.Run(string(role), func(t *testing.T) {
			conf := holder(role, "a-"+string(role))
			conn, err := tls.Dial("tcp", apiAddr.String(), conf)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+apiAddr.String()+"/healthz", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := req.Write(conn); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(conn)
			res, err := http.ReadResponse(in, req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			revoke("a-" + string(role))
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			var late net.Error
			for err = nil; err == nil; {
				_, err = in.ReadByte() // what is left of the answer, then the end
			}
			if errors.As(err, &late) && late.Timeout() {
				t.Error("the connection goes on")
			}
			again, err := tls.Dial("tcp", apiAddr.String(), conf)
			if err == nil {
				_ = again.SetReadDeadline(time.Now().Add(time.Minute))
				_, err = again.Read(make([]byte, 1))
				_ = again.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "bad certificate") {
				t.Errorf("a new one: %v, want it refused", err)
			}
		})
	}
}
