package agent

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/sluice-net/sluice/pki"
)

// authority makes certificates for a test.
type authority struct {
	t    testing.TB
	ca   *pki.CA
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	ca, err := pki.NewCA("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, ca: ca, pool: x509.NewCertPool()}
	a.pool.AppendCertsFromPEM(ca.PEM())
	return a
}

// issue returns a certificate of the role for this machine.
func (a *authority) issue(name string, role pki.Role) (pki.Pair, tls.Certificate) {
	a.t.Helper()
	pair, err := a.ca.Issue(pki.Request{Name: name, Role: role, Hosts: []string{"127.0.0.1", "localhost"}, Valid: time.Hour})
	if err != nil {
		a.t.Fatal(err)
	}
	c, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pair, c
}

// withTLS gives both agents certificates for data connections.
func withTLS(t testing.TB, on bool) func(x, y *Config) {
	if !on {
		return nil
	}
	ca := newAuthority(t)
	return func(x, y *Config) {
		_, cx := ca.issue("x", pki.RoleAgent)
		_, cy := ca.issue("y", pki.RoleAgent)
		x.DataTLS, y.DataTLS = DataTLS(cx, ca.pool), DataTLS(cy, ca.pool)
	}
}
