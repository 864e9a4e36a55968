// Package tlsconn makes TLS connections whose peers are verified as long as the connections last,
// and not only in the handshake. It calls tls.Config.VerifyConnection again every two seconds, and
// closes a connection when that refuses the peer, for instance because the peer's certificate has
// been revoked. All servers and clients of this program that check certificates of other machines
// use this package.
package tlsconn

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"
)

// Every is the time between two verifications of one connection. A shorter time would have no
// effect, because files are checked for changes no more often.
const Every = 2 * time.Second

// Server does what tls.Server does, and verifies the peer repeatedly.
func Server(raw net.Conn, c *tls.Config) *tls.Conn {
	g, c := guard(raw, c)
	return tls.Server(g, c)
}

// Client does what tls.Client does, and verifies the peer repeatedly.
func Client(raw net.Conn, c *tls.Config) *tls.Conn {
	g, c := guard(raw, c)
	return tls.Client(g, c)
}

// NewListener does what tls.NewListener does, and verifies the peers repeatedly.
func NewListener(l net.Listener, c *tls.Config) net.Listener { return listener{l, c} }

type listener struct {
	net.Listener
	config *tls.Config
}

// Accept returns a connection whose TLS handshake has not begun.
func (l listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Server(raw, l.config), nil
}

// Dial opens a connection, like net.Dialer.DialContext.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// DialTLS returns a function for http.Transport.DialTLSContext. timeout bounds the TLS handshake.
// If the configuration names no protocols, connections offer HTTP/2 and HTTP/1.1.
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
		_ = conn.Close() // ends the timer as well, if the handshake has started it
		return nil, err
	}
	return conn, nil
}

// guard returns a connection and a configuration with which the connection's peer is verified
// repeatedly.
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

// guarded is a connection that is closed when a later verification refuses its peer.
type guarded struct {
	net.Conn

	mu     sync.Mutex
	timer  *time.Timer // of the next verification; nil until the first one has succeeded
	closed bool
	why    error // why the verification has closed the connection; nil if it has not
}

// verify returns a function that verifies the peer by next and, if that succeeds, starts the
// repeated verification. It returns nil if next is nil.
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

// again verifies the peer once more. It closes the connection if that fails, and otherwise sets the
// timer for the next verification.
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

// Read implements net.Conn. If the verification has closed the connection, the error contains the
// reason.
func (g *guarded) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if err != nil {
		err = g.reason(err)
	}
	return n, err
}

// Write implements net.Conn. If the verification has closed the connection, the error contains the
// reason.
func (g *guarded) Write(b []byte) (int, error) {
	n, err := g.Conn.Write(b)
	if err != nil {
		err = g.reason(err)
	}
	return n, err
}

// reason returns the reason of the verification that has closed the connection, or err if none has.
func (g *guarded) reason(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why != nil {
		return fmt.Errorf("the connection was ended: %w", g.why)
	}
	return err
}

// SetWriteBuffer sets the size of the system's send buffer in bytes, as net.TCPConn.SetWriteBuffer
// does. It does nothing if the connection has no such method.
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
