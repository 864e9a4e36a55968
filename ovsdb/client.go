package ovsdb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Timeouts of a connection.
const (
	connectTimeout = 5 * time.Second
	// probeInterval is the time between two probes of the connection, and probeTimeout the time
	// to answer one.
	probeInterval = 5 * time.Second
	probeTimeout  = 5 * time.Second
	// firstBackoff and lastBackoff are the shortest and the longest pause between two attempts
	// to connect.
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
)

// ErrDown means that the database cannot be reached now.
var ErrDown = errors.New("the switch's database is not connected")

// Options configure a Client.
type Options struct {
	// Target is the address of the database, see CheckTarget.
	Target string
	// TLS is the configuration for ssl targets.
	TLS *tls.Config
	Log *slog.Logger
}

// Client is a connection to one database, which is restored whenever it breaks. It is safe for
// concurrent use.
type Client struct {
	opts Options

	mu      sync.Mutex
	session *session // nil while not connected
	state   *State   // nil while not connected
	changed chan struct{}
	err     error // the reason, while not connected

	applying sync.Mutex // serialises transactions
}

// New returns a client that does nothing until Run is called.
func New(o Options) (*Client, error) {
	if err := CheckTarget(o.Target); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{opts: o, changed: make(chan struct{}), err: ErrDown}, nil
}

// Target returns the address of the database.
func (c *Client) Target() string { return c.opts.Target }

// Run keeps the connection until ctx ends.
func (c *Client) Run(ctx context.Context) error {
	backoff := firstBackoff
	for ctx.Err() == nil {
		began := time.Now()
		err := c.serve(ctx)
		c.setState(nil, nil, err)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > lastBackoff {
			backoff = firstBackoff
		}
		c.opts.Log.Debug("switch database", "target", c.opts.Target, "error", err, "again_in", backoff)
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, lastBackoff)
	}
	return ctx.Err()
}

// serve serves one connection from beginning to end.
func (c *Client) serve(ctx context.Context) error {
	s, err := dial(ctx, c.opts)
	if err != nil {
		return fmt.Errorf("database %s: %w", c.opts.Target, err)
	}
	defer s.close()
	state, err := s.read(ctx)
	if err != nil {
		return fmt.Errorf("database %s: %w", c.opts.Target, err)
	}
	c.setState(s, state, nil)
	return s.watch(ctx, func(state *State) { c.setState(s, state, nil) })
}

// setState sets a new state and wakes all waiters.
func (c *Client) setState(s *session, state *State, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.state, c.err = s, state, err
	close(c.changed)
	c.changed = make(chan struct{})
}

// State returns the latest state, or nil while there is no connection, and a channel that is
// closed when the state changes.
func (c *Client) State() (*State, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.changed
}

// Err returns the reason why there is no connection, or nil.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrDown, c.err)
}

func (c *Client) current() (*session, *State, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session, c.state, c.changed
}

// WaitBridge waits until the database has a bridge with the datapath identifier.
func (c *Client) WaitBridge(ctx context.Context, dpid uint64) (Bridge, error) {
	for {
		state, changed := c.State()
		if state != nil {
			if b, ok := state.Bridge(dpid); ok {
				return b, nil
			}
		}
		select {
		case <-ctx.Done():
			if err := c.Err(); err != nil {
				return Bridge{}, err
			}
			return Bridge{}, fmt.Errorf("database %s has no bridge %016x: %w", c.opts.Target, dpid, ctx.Err())
		case <-changed:
		}
	}
}
