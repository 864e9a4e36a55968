package control

import (
	"context"
	"net"
)

// Dialer is how connections are made.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// until has a dialer's connections closed when ended ends, and none made afterwards. The HTTP
// transport dials on behalf of requests that are over by the time the connection stands, and
// keeps it: closing its idle connections does not end those.
func until(ended context.Context, dial Dialer) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		switch {
		case err != nil:
			return nil, err
		case ended.Err() != nil:
			_ = c.Close()
			return nil, net.ErrClosed
		}
		return &watched{c, context.AfterFunc(ended, func() { _ = c.Close() })}, nil
	}
}

// watched is a connection that a context closes until it is closed.
type watched struct {
	net.Conn
	forget func() bool
}

// Close closes the connection.
func (w *watched) Close() error {
	w.forget()
	return w.Conn.Close()
}
