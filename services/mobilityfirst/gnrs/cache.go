package gnrs

import (
	"bytes"
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
	// maxCached limits the names in a cache. If a server has one cache for each of several other
	// servers (DialPeer), these together hold up to 4*maxCached names, but each at least minCached.
	maxCached, minCached = 1 << 16, 1 << 12
	// negativeLifetime is how long the absence of a record is cached.
	negativeLifetime = time.Second
)

// Cache looks names up at a name service, and caches the answers. The service notifies the cache
// when a cached record has changed. An answer can be outdated, for half a minute at most, only if
// several notifications are lost, or if the service has no room to remember the cache. The methods
// may be called concurrently.
type Cache struct {
	client   *Client
	tasks    *tasks.Group
	changed  func(frame.GUID) // is called with names that have changed
	maxNames int

	mu    sync.Mutex
	names map[frame.GUID]*entry
}

// entry is the cached answer for a name, or a pending lookup.
type entry struct {
	ready  chan struct{} // closed when the answer is known
	record *record.Record
	err    error
	until  time.Time
	// changed means that the name has changed since the lookup was sent.
	changed bool
}

// DialCache returns a cache for the server at an address. It sends nothing yet. If changed is not
// nil, it is called with names that were looked up and have changed; it must not block.
func DialCache(server netip.AddrPort, changed func(frame.GUID)) (*Cache, error) {
	if changed == nil {
		changed = func(frame.GUID) {}
	}
	c := &Cache{tasks: tasks.New(), names: map[frame.GUID]*entry{}, maxNames: maxCached, changed: changed}
	var err error
	c.client, err = dial(server, c.change)
	return c, err
}

// DialPeer returns a cache with which one server asks another server, from a local address. servers
// is the number of all servers, by which the caches of one server share the room for names. The
// other server answers and writes by itself, without asking further servers.
func DialPeer(local netip.Addr, server netip.AddrPort, servers int, changed func(frame.GUID)) (*Cache, error) {
	c := &Cache{tasks: tasks.New(), names: map[frame.GUID]*entry{}, maxNames: max(maxCached*4/servers, minCached), changed: changed}
	var err error
	if c.client, err = dialFrom(local, server, c.change); err != nil {
		return nil, err
	}
	c.client.localOnly = true
	return c, nil
}

// Distance returns Client.Distance of the server.
func (c *Cache) Distance() time.Duration { return c.client.Distance() }

// RoundTrip returns Client.RoundTrip of the server.
func (c *Cache) RoundTrip() (trip time.Duration, silent bool) { return c.client.RoundTrip() }

// Close closes the cache; pending calls return ErrClosed.
func (c *Cache) Close() error {
	err := c.client.Close()
	c.tasks.Stop()
	return err
}

// Lookup returns the record of a name as Client.Lookup does, immediately if it is cached.
// Concurrent calls for one name share a request. The record must not be changed.
func (c *Cache) Lookup(ctx context.Context, name frame.GUID) (*record.Record, error) {
	r, _, err := c.LookupUntil(ctx, name)
	return r, err
}

// LookupUntil looks a name up as Lookup does, and also returns until when the answer is cached.
func (c *Cache) LookupUntil(ctx context.Context, name frame.GUID) (*record.Record, time.Time, error) {
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

// Write calls Client.Write.
func (c *Cache) Write(ctx context.Context, r *record.Record) error { return c.client.Write(ctx, r) }

// find returns the entry of a name, and starts a lookup if there is none.
func (c *Cache) find(name frame.GUID, now time.Time) (*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.names[name]; x != nil && (x.isPending() || now.Before(x.until)) {
		return x, nil
	}
	if len(c.names) >= c.maxNames {
		c.evict()
	}
	x := &entry{ready: make(chan struct{})}
	if !c.tasks.Start(func(ctx context.Context) { c.ask(ctx, name, x) }) {
		return nil, ErrClosed
	}
	c.names[name] = x
	return x, nil
}

// isPending reports whether the answer is not known yet.
func (x *entry) isPending() bool {
	select {
	case <-x.ready:
		return false
	default:
		return true
	}
}

// evict removes an arbitrary answer. The mutex is held.
func (c *Cache) evict() {
	for name, x := range c.names {
		if !x.isPending() {
			delete(c.names, name)
			return
		}
	}
}

// ask looks a name up, and passes the answer to the waiting callers.
func (c *Cache) ask(ctx context.Context, name frame.GUID, x *entry) {
	cookie := c.client.currentCookie()
	r, last, err := c.lookup(ctx, name)
	c.mu.Lock()
	x.record, x.err, x.until = r, err, time.Now().Add(last)
	kept := !x.changed && last > 0
	if !kept { // only the waiting callers get the answer
		delete(c.names, name)
	}
	close(x.ready)
	c.mu.Unlock()
	if kept && !bytes.Equal(c.client.currentCookie(), cookie) {
		c.watch(ctx, name, x)
	}
}

// lookup asks the server, and returns how long the answer may be cached.
func (c *Cache) lookup(ctx context.Context, name frame.GUID) (r *record.Record, last time.Duration, err error) {
	r, last, err = c.client.lookup(ctx, name, gnrswire.Option{Kind: optionWatch})
	if refused := (*RefusedError)(nil); errors.As(err, &refused) && refused.Code == NotFound {
		last = negativeLifetime
	}
	return r, last, err
}

// watch looks a name up again and replaces its answer. The server promised no notifications with
// the answer, because it did not have the client's cookie yet. Nobody waits for this lookup.
func (c *Cache) watch(ctx context.Context, name frame.GUID, before *entry) {
	r, last, err := c.lookup(ctx, name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if last == 0 || c.names[name] != before { // there is no answer, or the name has changed since
		return
	}
	x := &entry{ready: make(chan struct{}), record: r, err: err, until: time.Now().Add(last)}
	close(x.ready)
	c.names[name] = x
}

// change handles the server's notification that a name has changed.
func (c *Cache) change(name frame.GUID) {
	defer c.changed(name)
	c.Forget(name)
}

// Forget removes the answer for a name.
func (c *Cache) Forget(name frame.GUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch x := c.names[name]; {
	case x == nil:
	case x.isPending():
		x.changed = true
	default:
		delete(c.names, name)
	}
}
