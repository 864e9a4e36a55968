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

// Bounds of a connection.
const (
	connectTimeout = 5 * time.Second
	// probeInterval is the silence after which a database is asked for a sign of
	// life, probeTimeout what it may take to answer.
	probeInterval = 5 * time.Second
	probeTimeout  = 5 * time.Second
	// firstBackoff and lastBackoff are the shortest and the longest pause between
	// two attempts to connect.
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
)

// ErrDown says that the database cannot be reached now.
var ErrDown = errors.New("the switch's database is not connected")

// Options is what a Client is made from.
type Options struct {
	// Target is where the database listens, see CheckTarget.
	Target string
	// TLS is for ssl targets.
	TLS *tls.Config
	Log *slog.Logger
}

// Client is a connection to one database that is made again whenever it breaks.
// Its methods may be called concurrently.
type Client struct {
	opts Options

	mu      sync.Mutex
	session *session // nil while not connected
	state   *State   // nil while not connected
	changed chan struct{}
	err     error // why it is not connected

	applying sync.Mutex // one transaction after the other
}

// New returns a client that does nothing until Run.
func New(o Options) (*Client, error) {
	if err := CheckTarget(o.Target); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{opts: o, changed: make(chan struct{}), err: ErrDown}, nil
}

// Target is where the database listens.
func (c *Client) Target() string { return c.opts.Target }

// Run keeps the connection until ctx ends.
func (c *Client) Run(ctx context.Context) error {
	backoff := firstBackoff
	for ctx.Err() == nil {
		began := time.Now()
		err := c.serve(ctx)
		c.set(nil, nil, err)
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

// serve is one connection, from its beginning to its end.
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
	c.set(s, state, nil)
	return s.follow(ctx, func(state *State) { c.set(s, state, nil) })
}

// set takes a new state and tells everybody who waits.
func (c *Client) set(s *session, state *State, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.state, c.err = s, state, err
	close(c.changed)
	c.changed = make(chan struct{})
}

// State is the latest state, or nil while there is no connection, and a channel
// that is closed when that changes.
func (c *Client) State() (*State, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.changed
}

// Err says why there is no connection; it is nil while there is one.
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

// WaitBridge returns when the database knows a bridge by its datapath identifier.
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
