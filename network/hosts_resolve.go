package network

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Bounds of host resolution.
const (
	resolveTimeout  = 2 * time.Second
	resolveInterval = 250 * time.Millisecond
	maxResolutions  = 1024
)

// resolver resolves addresses to hosts, with one search for each address.
type resolver struct {
	prober *hostProber

	mu      sync.Mutex
	waiting map[netip.Addr]*resolution
}

// resolution is a search for one host, shared by all callers that look for it.
type resolution struct {
	found   chan struct{} // closed when the host is known
	waiters int
}

// ResolveHost returns the host that has an address, from the host table or, if it is not there, by
// probing every edge port with ARP or neighbour discovery. It returns ErrUnknownHost if nothing
// answers within two seconds or before ctx ends, and ErrVirtual for a virtual address.
func (n *Network) ResolveHost(ctx context.Context, a netip.Addr) (Host, error) {
	if v, virtual := n.Virtual(a); virtual {
		return Host{}, fmt.Errorf("%v belongs to %s: %w", a, v.Service, ErrVirtual)
	}
	return n.resolver.resolve(ctx, a.Unmap())
}

// resolve returns the host from the table or by probing.
func (r *resolver) resolve(ctx context.Context, a netip.Addr) (Host, error) {
	if h, ok := r.prober.hosts.ByIP(a); ok {
		return h, nil
	}
	w, err := r.join(a)
	if err != nil {
		return Host{}, err
	}
	defer r.leave(a, w)
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	again := time.NewTicker(resolveInterval)
	defer again.Stop()
	for {
		// The host may have been learned before this search began. Its answer then changes nothing
		// in the table, and wakes nobody.
		if h, ok := r.prober.hosts.ByIP(a); ok {
			return h, nil
		}
		r.prober.probeAllPorts(a)
		select {
		case <-w.found:
			if h, ok := r.prober.hosts.ByIP(a); ok {
				return h, nil
			}
		case <-again.C:
			continue
		case <-ctx.Done():
		}
		return Host{}, fmt.Errorf("%w: nobody answers for %v", ErrUnknownHost, a)
	}
}

// join returns the search for an address, and starts one if there is none.
func (r *resolver) join(a netip.Addr) (*resolution, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.waiting[a]
	if w == nil {
		if len(r.waiting) >= maxResolutions {
			return nil, fmt.Errorf("%w: %d addresses are being looked for", ErrBusy, maxResolutions)
		}
		if r.waiting == nil {
			r.waiting = map[netip.Addr]*resolution{}
		}
		w = &resolution{found: make(chan struct{})}
		r.waiting[a] = w
	}
	w.waiters++
	return w, nil
}

// leave ends a caller's part in a search.
func (r *resolver) leave(a netip.Addr, w *resolution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.waiters--; w.waiters == 0 && r.waiting[a] == w {
		delete(r.waiting, a)
	}
}

// wake ends the searches for the addresses.
func (r *resolver) wake(ips []netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range ips {
		if w := r.waiting[a]; w != nil {
			delete(r.waiting, a)
			close(w.found)
		}
	}
}
