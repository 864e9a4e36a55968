package gnrs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// maxCached bounds the names of which a cache keeps where they are; those before several servers have four times as many
	// together, but minCached each.
	maxCached, minCached = 1 << 16, 1 << 12
	// unknownFor is how long is kept that nobody has said where a name is.
	unknownFor = time.Second
)

// Cache asks a name service, and keeps its answers for as long as they may be kept: the service tells it
// at once when a name has changed. Only where that does not arrive, several times, or has too many to be
// told to, is an answer kept that does not hold any more, for half a minute at most. Its methods may be called concurrently.
type Cache struct {
	client  *Client
	tasks   *tasks.Group
	changed func(frame.GUID) // is told of names that have changed
	most    int

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

// DialCache makes a cache before the server at an address. It sends nothing yet. If changed is not nil, it is told of
// names that were asked for and have changed; it must not block.
func DialCache(server netip.AddrPort, changed func(frame.GUID)) (*Cache, error) {
	if changed == nil {
		changed = func(frame.GUID) {}
	}
	c := &Cache{tasks: tasks.New(), names: map[frame.GUID]*cached{}, most: maxCached, changed: changed}
	var err error
	c.client, err = dial(server, c.change)
	return c, err
}

// DialPeer is DialCache of one server before another, one of so many, from one of this machine's addresses: that answers,
// and writes, what it knows by itself, and asks no others in turn.
func DialPeer(local netip.Addr, server netip.AddrPort, servers int, changed func(frame.GUID)) (*Cache, error) {
	c := &Cache{tasks: tasks.New(), names: map[frame.GUID]*cached{}, most: max(maxCached*4/servers, minCached), changed: changed}
	var err error
	if c.client, err = dialFrom(local, server, c.change); err != nil {
		return nil, err
	}
	c.client.alone = true
	return c, nil
}

// Distance is that of the server, as Client.Distance says.
func (c *Cache) Distance() time.Duration { return c.client.Distance() }

// Heard is what Client.Heard says of the server.
func (c *Cache) Heard() (trip time.Duration, silent bool) { return c.client.Heard() }

// Close ends it; who waits gets ErrClosed.
func (c *Cache) Close() error {
	err := c.client.Close()
	c.tasks.Stop()
	return err
}

// Lookup says where a name is, as Client.Lookup does, at once if that is known. Calls for one name share
// a question. The record is not to be changed.
func (c *Cache) Lookup(ctx context.Context, name frame.GUID) (*record.Record, error) {
	r, _, err := c.Kept(ctx, name)
	return r, err
}

// Kept is Lookup, and says until when the answer is kept.
func (c *Cache) Kept(ctx context.Context, name frame.GUID) (*record.Record, time.Time, error) {
	x, err := c.find(name, time.Now())
	if err != nil {
		return nil, time.Time{}, err
	}
	select {
	case <-x.ready:
		return x.record, x.until, x.err
	case <-ctx.Done():
		return nil, time.Time{}, fmt.Errorf("looking up %v: %w", name, context.Cause(ctx))
	}
}

// Write is Client.Write.
func (c *Cache) Write(ctx context.Context, r *record.Record) error { return c.client.Write(ctx, r) }

// find returns what is known of a name, and has it asked for if that is nothing.
func (c *Cache) find(name frame.GUID, now time.Time) (*cached, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.names[name]; x != nil && (x.asking() || now.Before(x.until)) {
		return x, nil
	}
	if len(c.names) >= c.most {
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

// change is for a name of which the server says that it has changed.
func (c *Cache) change(name frame.GUID) {
	defer c.changed(name)
	c.Forget(name)
}

// Forget forgets where a name was.
func (c *Cache) Forget(name frame.GUID) {
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
