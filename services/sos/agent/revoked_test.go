package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// files issues a certificate into the authority's folder.
func (a *authority) files(name string, role pki.Role, valid time.Duration) pki.Files {
	a.t.Helper()
	pair, err := a.ca.Issue(pki.Request{Name: name, Role: role, Hosts: []string{"127.0.0.1"}, Valid: valid})
	if err != nil {
		a.t.Fatal(err)
	}
	if err := pair.Write(a.dir, name); err != nil {
		a.t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(a.dir, name) }
	return pki.Files{Cert: file(name + ".crt"), Key: file(name + ".key"), CA: file(pki.CACertFile)}
}

// secured returns an agent with a certificate, and the controller's configuration for it.
func secured(t *testing.T) (*authority, *Agent, *tls.Config) {
	t.Helper()
	ca := newAuthority(t)
	cfg := testConfig(addrX)
	own := ca.files("agent1", pki.RoleAgent, 10*time.Hour)
	cfg.Cert, cfg.Key, cfg.CA = own.Cert, own.Key, own.CA
	a, err := New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	conf, err := pki.Client(ca.files("controller", pki.RoleController, time.Hour), pki.RoleAgent)
	if err != nil {
		t.Fatal(err)
	}
	return ca, a, conf
}

// TestRevocationEndsControl checks that the controller's stream of an agent ends when the
// certificate of either is revoked by the other side, and that it cannot be opened again.
func TestRevocationEndsControl(t *testing.T) {
	for _, name := range []string{"controller", "agent1"} {
		t.Run(name, func(t *testing.T) {
			ca, a, conf := secured(t)
			client, err := agentapi.NewClient("https://"+a.ControlAddr().String(), conf, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			heard, ended := make(chan struct{}, 1), make(chan error, 1)
			go func() {
				ended <- client.Watch(ctx, control.Silence, func(agentapi.Event) {
					select {
					case heard <- struct{}{}:
					default:
					}
				})
			}()
			select {
			case <-heard:
			case err := <-ended:
				t.Fatal(err)
			}
			cert, err := pki.ReadCert(filepath.Join(ca.dir, name+".crt"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ca.ca.Revoke(ca.dir, cert.SerialNumber); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; errors.Is(err, context.DeadlineExceeded) || errors.Is(err, control.ErrSilent) {
				t.Errorf("it goes on until %v", err)
			}
			if _, err := client.Status(ctx); err == nil {
				t.Error("it begins anew")
			}
		})
	}
}
