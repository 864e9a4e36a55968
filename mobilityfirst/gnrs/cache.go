package gnrs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/mobilityfirst/frame"
	"github.com/sluice-net/sluice/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/mobilityfirst/record"
)

const (
	// maxCached bounds the names of which a cache keeps where they are.
	maxCached = 1 << 16
	// unknownFor is how long is kept that nobody has said where a name is.
	unknownFor = time.Second
)

// Cache asks a name service, and keeps its answers for as long as they may be kept: the service tells it
// at once when a name has changed. Only where that does not arrive, several times, or has too many to be
// told to, is an answer kept that does not hold any more, for half a minute at most. Its methods may be called concurrently.
type Cache struct {
	client *Client
	tasks  *tasks.Group

	mu    sync.Mutex
	names map[frame.GUID]*cached
}

// cached is what is known of a name, or is being asked.
type cached struct {
	ready  chan struct{} // closed when it is known
	record *record.Record
	err    error
	until  time.Time
	// changed says that the name has changed since it was asked.
	changed bool
}

// DialCache makes a cache before the server at an address. It sends nothing yet.
func DialCache(server netip.AddrPort) (*Cache, error) {
	c := &Cache{tasks: tasks.New(), names: map[frame.GUID]*cached{}}
	var err error
	c.client, err = dial(server, c.change)
	return c, err
}

// Close ends it; who waits gets ErrClosed.
func (c *Cache) Close() error {
	err := c.client.Close()
	c.tasks.Stop()
	return err
}

// Lookup says where a name is, as Client.Lookup does, at once if that is known. Calls for one name share
// a question. The record is not to be changed.
func (c *Cache) Lookup(ctx context.Context, name frame.GUID) (*record.Record, error) {
	x, err := c.find(name, time.Now())
	if err != nil {
		return nil, err
	}
	select {
	case <-x.ready:
		return x.record, x.err
	case <-ctx.Done():
		return nil, fmt.Errorf("looking up %v: %w", name, context.Cause(ctx))
	}
}

// find returns what is known of a name, and has it asked for if that is nothing.
func (c *Cache) find(name frame.GUID, now time.Time) (*cached, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.names[name]; x != nil && (x.asking() || now.Before(x.until)) {
		return x, nil
	}
	if len(c.names) >= maxCached {
		c.makeRoom()
	}
	x := &cached{ready: make(chan struct{})}
	if !c.tasks.Start(func(ctx context.Context) { c.ask(ctx, name, x) }) {
		return nil, ErrClosed
	}
	c.names[name] = x
	return x, nil
}

// asking says whether it is not known yet.
func (x *cached) asking() bool {
	select {
	case <-x.ready:
		return false
	default:
		return true
	}
}

// makeRoom forgets a name: any will do. The lock is held.
func (c *Cache) makeRoom() {
	for name, x := range c.names {
		if !x.asking() {
			delete(c.names, name)
			return
		}
	}
}

// ask asks where a name is.
func (c *Cache) ask(ctx context.Context, name frame.GUID, x *cached) {
	r, last, err := c.client.lookup(ctx, name, gnrswire.Option{Kind: optionWatch})
	if refused := (*RefusedError)(nil); errors.As(err, &refused) && refused.Code == NotFound {
		last = unknownFor
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	x.record, x.err, x.until = r, err, time.Now().Add(last)
	if x.changed || last == 0 { // whoever has waited gets it, and nobody else
		delete(c.names, name)
	}
	close(x.ready)
}

// change forgets where a name was.
func (c *Cache) change(name frame.GUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch x := c.names[name]; {
	case x == nil:
	case x.asking():
		x.changed = true
	default:
		delete(c.names, name)
	}
}
