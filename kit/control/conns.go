package control

import (
	"context"
	"net"
)

// Dialer makes connections, like net.Dialer's DialContext.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// closeWhenEnded returns a dialer whose connections are closed when the context ended ends, and
// which makes none afterwards. The HTTP transport finishes a dial, and keeps the connection,
// although the request for it has ended. Closing the transport's idle connections does not close
// such a connection.
func closeWhenEnded(ended context.Context, dial Dialer) Dialer {
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

// watched is a connection that is closed when a context ends.
type watched struct {
	net.Conn
	forget func() bool
}

// Close closes the connection.
func (w *watched) Close() error {
	w.forget()
	return w.Conn.Close()
}
