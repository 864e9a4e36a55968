package agent

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// route describes how the kernel reaches an address.
type route struct {
	link    int
	nextHop netip.Addr
	onLink  bool
}

// routeTo asks the kernel for its route to an address. The error wraps ENETUNREACH or
// EHOSTUNREACH if there is none.
func routeTo(addr netip.Addr) (route, error) {
	found, err := netlink.RouteGet(net.IP(addr.AsSlice()))
	if err != nil {
		return route{}, fmt.Errorf("route to %v: %w", addr, err)
	}
	if len(found) == 0 {
		return route{}, fmt.Errorf("route to %v: %w", addr, unix.ENETUNREACH)
	}
	r := route{link: found[0].LinkIndex, nextHop: addr, onLink: true}
	if gw, ok := netip.AddrFromSlice(found[0].Gw); ok && !gw.IsUnspecified() {
		r.nextHop, r.onLink = gw.Unmap(), false
	}
	return r, nil
}

// nextHopMAC returns the MAC address of the next hop from the neighbour table. If the table does
// not contain it, nextHopMAC returns "" and makes the kernel resolve it without waiting, so that
// the next session finds it.
func (r route) nextHopMAC() string {
	family := netlink.FAMILY_V4
	if r.nextHop.Is6() {
		family = netlink.FAMILY_V6
	}
	list, err := netlink.NeighList(r.link, family)
	if err == nil {
		for _, n := range list {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == r.nextHop && len(n.HardwareAddr) > 0 {
				return n.HardwareAddr.String()
			}
		}
	}
	r.askNeighbour()
	return ""
}

// askNeighbour makes the kernel resolve the next hop. A packet to the next hop would do so, too.
// But a switch may then cache how to forward that packet, and could forward the first packet of the
// session by the same cached flow, past rules that it has just confirmed.
func (r route) askNeighbour() {
	_ = netlink.NeighSet(&netlink.Neigh{LinkIndex: r.link, IP: r.nextHop.AsSlice(), State: netlink.NUD_NONE, Flags: netlink.NTF_USE})
}

// interfaceMAC returns the MAC address of the interface that has addr; "" if no interface has it.
func interfaceMAC(addr netip.Addr) string {
	list, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, i := range list {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == addr {
				return i.HardwareAddr.String()
			}
		}
	}
	return ""
}

const (
	// routeAge is how long a route from the kernel is used. Many sessions between one pair of hosts
	// start at the same time, and a query costs as much as opening a port.
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

// lookup returns the route to an address. Its errors are those of routeTo.
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

// cached returns the cached value of a key if it is younger than routeAge. Otherwise it calls ask,
// whose second result reports whether the value may be cached.
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
