package agent

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pkitest"
	"github.com/sluice-net/sluice/pki"
)

// authority makes certificates for a test.
type authority struct {
	t    testing.TB
	dir  string
	ca   *pki.CA
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.Init(dir, "test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, dir: dir, ca: ca, pool: x509.NewCertPool()}
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

// withoutRole returns a certificate that names no role.
func (a *authority) withoutRole(name string) []tls.Certificate {
	a.t.Helper()
	pkitest.WithoutRole(a.t, a.dir, name)
	c, err := tls.LoadX509KeyPair(filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key"))
	if err != nil {
		a.t.Fatal(err)
	}
	return []tls.Certificate{c}
}

// TestDataConnectionsAreBetweenAgents checks that data connections by TLS need certificates of
// agents of one authority: both sides refuse any other.
func TestDataConnectionsAreBetweenAgents(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	_, own := ca.issue("agent1", pki.RoleAgent)
	mapping := pki.Mapping{"old-agent": pki.RoleAgent, "agent1": pki.RoleController}
	for _, c := range []struct {
		name string
		cert []tls.Certificate
		good bool
	}{
		{"an agent", second(ca.issue("agent2", pki.RoleAgent)), true},
		{"a controller", second(ca.issue("controller", pki.RoleController)), false},
		{"a switch", second(ca.issue("switch", pki.RoleSwitch)), false},
		{"an operator", second(ca.issue("operator", pki.RoleOperator)), false},
		{"a neighbour", second(ca.issue("neighbour", pki.RoleNeighbour)), false},
		{"a node", second(ca.issue("node", pki.RoleNode)), false},
		{"no role", ca.withoutRole("nobody"), false},
		{"no role, but mapped", ca.withoutRole("old-agent"), true},
		{"another authority's agent", second(stranger.issue("agent2", pki.RoleAgent)), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			// This side checks nothing, because the test is about the other side's checks.
			other := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: c.cert, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true}
			ours := DataTLS(own, ca.pool, mapping)
			if err := shake(t, ours, other).server; (err == nil) != c.good {
				t.Errorf("it connects: %v", err)
			}
			if err := shake(t, other, ours).client; (err == nil) != c.good {
				t.Errorf("it is connected to: %v", err)
			}
		})
	}
}

// handshake holds the error of each side of a TLS handshake.
type handshake struct{ server, client error }

func shake(t *testing.T, server, client *tls.Config) (h handshake) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	deadline := time.Now().Add(testTimeout)
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(deadline)
		done <- tls.Server(conn, server).Handshake()
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(deadline)
	h.client = tls.Client(conn, client).Handshake()
	if h.client != nil {
		_ = conn.Close()
	}
	h.server = <-done
	_ = conn.Close()
	return h
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
		x.DataTLS, y.DataTLS = DataTLS(cx, ca.pool, nil), DataTLS(cy, ca.pool, nil)
	}
}
