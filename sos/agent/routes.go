package agent

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// routeAge is how long what the kernel said of a way is believed: sessions of
	// one pair of hosts come in crowds, and asking costs as much as opening a port.
	routeAge = time.Second
	// maxRoutes bounds what is remembered.
	maxRoutes = 4096
)

// routes remembers for a moment what the kernel said of ways and neighbours. It
// is safe for concurrent use.
type routes struct {
	mu   sync.Mutex
	ways map[netip.Addr]timed[route]
	hops map[route]timed[string]
}

type timed[T any] struct {
	value T
	at    time.Time
}

func newRoutes() *routes {
	return &routes{ways: map[netip.Addr]timed[route]{}, hops: map[route]timed[string]{}}
}

// to is the way to an address. The error is routeTo's.
func (r *routes) to(addr netip.Addr) (route, error) {
	return remember(&r.mu, r.ways, addr, func() (route, bool, error) {
		way, err := routeTo(addr)
		return way, err == nil, err
	})
}

// mac is the address of the way's next hop, empty while it is not known.
func (r *routes) mac(way route) string {
	mac, _ := remember(&r.mu, r.hops, way, func() (string, bool, error) {
		mac := way.nextHopMAC()
		return mac, mac != "", nil
	})
	return mac
}

// remember returns what is known of a key, or asks; the answer says whether it
// may be kept.
func remember[K comparable, V any](mu *sync.Mutex, known map[K]timed[V], key K, ask func() (V, bool, error)) (V, error) {
	now := time.Now()
	mu.Lock()
	old, ok := known[key]
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
	if len(known) >= maxRoutes {
		clear(known)
	}
	known[key] = timed[V]{v, now}
	return v, err
}
