package control

import (
	"context"
	"net"
	"sync"
)

// Dialer is how connections are made.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// conns are a client's open connections. The HTTP transport dials on behalf of
// requests that are over by the time the connection stands, and keeps it: closing
// its idle connections does not end those.
type conns struct {
	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
}

// track has a dialer's connections known, and none made after close.
func (o *conns) track(dial Dialer) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.closed {
			_ = c.Close()
			return nil, net.ErrClosed
		}
		o.open[c] = struct{}{}
		return &tracked{c, o}, nil
	}
}

// close ends all connections, now and for good.
func (o *conns) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for c := range o.open {
		_ = c.Close()
	}
	clear(o.open)
}

// tracked is a connection that its client knows until it is closed.
type tracked struct {
	net.Conn
	of *conns
}

// Close closes the connection.
func (t *tracked) Close() error {
	t.of.mu.Lock()
	delete(t.of.open, t.Conn)
	t.of.mu.Unlock()
	return t.Conn.Close()
}
