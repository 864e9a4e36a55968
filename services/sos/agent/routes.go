package agent

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// routeAge is how long a route that the kernel has returned is used. Many sessions of
	// one pair of hosts start at the same time, and asking costs as much as opening a port.
	routeAge = time.Second
	// maxRoutes bounds the number of cached routes.
	maxRoutes = 4096
)

// routes caches the kernel's routes and neighbours for a short time. It is safe for
// concurrent use.
type routes struct {
	mu     sync.Mutex
	routes map[netip.Addr]timed[route]
	hops   map[route]timed[string]
}

type timed[T any] struct {
	value T
	at    time.Time
}

func newRoutes() *routes {
	return &routes{routes: map[netip.Addr]timed[route]{}, hops: map[route]timed[string]{}}
}

// lookup returns the route to an address. The error is that of routeTo.
func (r *routes) lookup(addr netip.Addr) (route, error) {
	return cached(&r.mu, r.routes, addr, func() (route, bool, error) {
		route, err := routeTo(addr)
		return route, err == nil, err
	})
}

// mac returns the MAC address of the route's next hop; empty while it is not known.
func (r *routes) mac(via route) string {
	mac, _ := cached(&r.mu, r.hops, via, func() (string, bool, error) {
		mac := via.nextHopMAC()
		return mac, mac != "", nil
	})
	return mac
}

// cached returns the cached value of a key, or calls ask, whose second result reports
// whether the value may be cached.
func cached[K comparable, V any](mu *sync.Mutex, values map[K]timed[V], key K, ask func() (V, bool, error)) (V, error) {
	now := time.Now()
	mu.Lock()
	old, ok := values[key]
	mu.Unlock()
	if ok && now.Sub(old.at) < routeAge {
		return old.value, nil
	}
	v, keep, err := ask()
	if !keep {
		return v, err
	}
	mu.Lock()
	defer mu.Unlock()
	if len(values) >= maxRoutes {
		clear(values)
	}
	values[key] = timed[V]{v, now}
	return v, err
}
