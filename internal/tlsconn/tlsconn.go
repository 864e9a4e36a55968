// Package tlsconn makes TLS connections whose peers are verified for as long as the
// connections last, not only when they begin: what tls.Config.VerifyConnection has let in it
// is asked about again every two seconds, and a connection whose peer it refuses by then,
// because its certificate has been revoked, ends. All servers and clients of this program
// that check certificates of other machines use it.
package tlsconn

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"
)

// Every is the time between two verifications of one connection. Files are not read more
// often anyway.
const Every = 2 * time.Second

// Server is like tls.Server.
func Server(raw net.Conn, c *tls.Config) *tls.Conn {
	g, c := guard(raw, c)
	return tls.Server(g, c)
}

// Client is like tls.Client.
func Client(raw net.Conn, c *tls.Config) *tls.Conn {
	g, c := guard(raw, c)
	return tls.Client(g, c)
}

// NewListener is like tls.NewListener.
func NewListener(l net.Listener, c *tls.Config) net.Listener { return listener{l, c} }

type listener struct {
	net.Listener
	config *tls.Config
}

// Accept returns a connection that has not greeted yet.
func (l listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Server(raw, l.config), nil
}

// Dial is a function that connects, like that of a net.Dialer.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// DialTLS returns what an http.Transport wants as DialTLSContext. The greeting may take as
// long as timeout. A configuration that names no protocols offers HTTP/2 and HTTP/1.1.
func DialTLS(dial Dial, c *tls.Config, timeout time.Duration) Dial {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	if c = c.Clone(); c == nil {
		c = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if len(c.NextProtos) == 0 {
		c.NextProtos = []string{"h2", "http/1.1"}
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		conn, err := greet(ctx, raw, addr, c, timeout)
		if err != nil {
			_ = raw.Close()
			return nil, err
		}
		return conn, nil
	}
}

func greet(ctx context.Context, raw net.Conn, addr string, c *tls.Config, timeout time.Duration) (*tls.Conn, error) {
	if c.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("address of a server: %w", err)
		}
		c = c.Clone()
		c.ServerName = host
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn := Client(raw, c)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // its timer, if the greeting got that far
		return nil, err
	}
	return conn, nil
}

// guard wraps a connection and a configuration so that the connection's peer is verified
// again and again.
func guard(raw net.Conn, c *tls.Config) (*guarded, *tls.Config) {
	g := &guarded{Conn: raw}
	c = c.Clone()
	c.VerifyConnection = g.verify(c.VerifyConnection)
	if find := c.GetConfigForClient; find != nil {
		c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			found, err := find(hello)
			if found == nil || err != nil {
				return found, err
			}
			found = found.Clone()
			found.VerifyConnection = g.verify(found.VerifyConnection)
			return found, nil
		}
	}
	return g, c
}

// guarded is a connection that is closed when its peer is refused.
type guarded struct {
	net.Conn

	mu     sync.Mutex
	timer  *time.Timer // of the next verification, once there was a first
	closed bool
	why    error // it was closed here
}

// verify returns a verification by next that goes on for as long as the connection lasts.
func (g *guarded) verify(next func(tls.ConnectionState) error) func(tls.ConnectionState) error {
	if next == nil {
		return nil
	}
	return func(s tls.ConnectionState) error {
		if err := next(s); err != nil {
			return err
		}
		if len(s.PeerCertificates) > 0 {
			g.watch(func() error { return next(s) })
		}
		return nil
	}
}

func (g *guarded) watch(verify func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed && g.timer == nil {
		g.timer = time.AfterFunc(Every, func() { g.again(verify) })
	}
}

// again verifies once more.
func (g *guarded) again(verify func() error) {
	err := verify()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
	case err == nil:
		g.timer.Reset(Every)
	default:
		g.closed, g.why = true, err
		_ = g.Conn.Close()
	}
}

// Read implements net.Conn. Its error says why the connection was closed, if it was here.
func (g *guarded) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if err != nil {
		err = g.reason(err)
	}
	return n, err
}

func (g *guarded) reason(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why != nil {
		return fmt.Errorf("the connection was ended: %w", g.why)
	}
	return err
}

// SetWriteBuffer sets how many bytes the system keeps that the peer has not read, as that of
// net.TCPConn does.
func (g *guarded) SetWriteBuffer(bytes int) error {
	if c, ok := g.Conn.(interface{ SetWriteBuffer(int) error }); ok {
		return c.SetWriteBuffer(bytes)
	}
	return nil
}

// Close implements net.Conn.
func (g *guarded) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.timer != nil {
		g.timer.Stop()
	}
	return g.Conn.Close()
}
