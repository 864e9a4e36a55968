package gnrs

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// Roaming is a client of a name service for a host that moves: it opens a new socket when the
// host's address has changed. Its methods may be called concurrently.
type Roaming struct {
	server netip.AddrPort

	mu      sync.Mutex
	cache   *Cache
	at      netip.Addr // the local address
	changed func(frame.GUID)
	closed  bool
}

// NewRoaming returns a client of the server at an address. It sends nothing yet.
func NewRoaming(server netip.AddrPort) *Roaming {
	return &Roaming{server: server, changed: func(frame.GUID) {}}
}

// Changed registers f, which is called when a name that was looked up has moved. It has to be
// called before any lookup. f must not block.
func (r *Roaming) Changed(f func(frame.GUID)) { r.changed = f }

// Addr returns the local address from which packets reach the server.
func (r *Roaming) Addr() (netip.Addr, error) {
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(r.server)) // this sends nothing
	if err != nil {
		return netip.Addr{}, fmt.Errorf("the way to the name service at %v: %w", r.server, err)
	}
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), conn.Close()
}

// current returns the cache for the host's current address.
func (r *Roaming) current() (*Cache, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, err := r.Addr()
	if err != nil {
		return nil, err
	}
	switch {
	case r.closed:
		return nil, ErrClosed
	case r.cache != nil && r.at == at:
		return r.cache, nil
	}
	fresh, err := DialCache(r.server, r.changed)
	if err != nil {
		return nil, err
	}
	old := r.cache
	r.cache, r.at = fresh, at
	if old != nil {
		err = old.Close()
	}
	return fresh, err
}

// Close closes the client; pending calls return ErrClosed.
func (r *Roaming) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed = true; r.cache == nil {
		return nil
	}
	return r.cache.Close()
}

// Addresses returns the IPv4 addresses of a name, looked up as in Cache.Lookup.
func (r *Roaming) Addresses(ctx context.Context, name frame.GUID) (all []netip.AddrPort, err error) {
	c, err := r.current()
	if err != nil {
		return nil, err
	}
	found, err := c.Lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, a := range found.Addresses {
		if at, ok := a.AddrPort(); ok {
			all = append(all, at)
		}
	}
	return all, nil
}

// Publish signs and writes a record with the addresses of a key's name.
func (r *Roaming) Publish(ctx context.Context, key ed25519.PrivateKey, number uint64, until time.Time, at ...netip.AddrPort) error {
	var addresses []gnrswire.Address
	for _, a := range at {
		if !a.Addr().Unmap().Is4() {
			return errors.New("a name can be at IPv4 addresses only")
		}
		addresses = append(addresses, gnrswire.AddrPortOf(a))
	}
	signed, err := record.Sign(key, number, until, addresses...)
	if err != nil {
		return err
	}
	c, err := r.current()
	if err != nil {
		return err
	}
	return c.Write(ctx, signed)
}
