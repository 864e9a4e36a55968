package domain

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/pki"
)

// closing reports when a connection has been closed by the side that dialled it.
type closing struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *closing) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.closed) })
	return err
}

// A connection to a neighbour ends when the neighbour's certificate is revoked, and no other
// is made.
func TestRevocationEndsConnectionsToNeighbours(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	n := neighbourFor(t, a, b)
	var made []*closing
	var d net.Dialer
	c := newClient(n, func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		made = append(made, &closing{Conn: conn, closed: make(chan struct{})})
		return made[len(made)-1], nil
	})
	defer c.close()
	say := func() error {
		return c.send(t.Context(), KindQuery, &Query{Envelope: envelopeFor("a", "b", time.Now())}, nil)
	}
	if err := say(); err != nil && strings.Contains(err.Error(), "pki:") {
		t.Fatal(err)
	}
	if len(made) != 1 {
		t.Fatalf("%d connections, want one", len(made))
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(b.url, "https://"), n.TLS)
	if err != nil {
		t.Fatal(err)
	}
	serial := conn.ConnectionState().PeerCertificates[0].SerialNumber
	_ = conn.Close()
	ca, err := pki.Load(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Revoke(b.dir, serial); err != nil {
		t.Fatal(err)
	}
	select {
	case <-made[0].closed:
	case <-time.After(waitLimit):
		t.Error("the connection goes on")
	}
	if err := say(); err == nil || !strings.Contains(err.Error(), "was revoked") {
		t.Errorf("a new one: %v, want it refused", err)
	}
}
