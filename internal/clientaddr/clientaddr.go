// Package clientaddr says whose an HTTP request is, for what is bounded per client: by the
// connection's address, or behind a reverse proxy by what that says. Start with Proxies.
package clientaddr

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxHops is how many proxies one behind the other are looked through.
const maxHops = 16

// Proxies are the addresses of reverse proxies whose X-Forwarded-For is believed. Nil believes
// nobody's.
type Proxies []netip.Prefix

// Trust says whether an address is that of such a proxy.
func (p Proxies) Trust(a netip.Addr) bool {
	a = plain(a)
	return slices.ContainsFunc(p, func(x netip.Prefix) bool { return x.Contains(a) })
}

// Client is the address from which a request comes: that of its connection, or if a trusted
// proxy has that, the last one in X-Forwarded-For that no trusted proxy has. What a client
// has written there itself stands before that, and is not looked at. It is that of the last
// proxy where this says nothing that can be read. The zero value is for what did not come by IP.
func (p Proxies) Client(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	client := plain(from.Addr())
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops[max(0, len(hops)-maxHops):]) {
		if !p.Trust(client) {
			break
		}
		a, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		client = plain(a)
	}
	return client
}

// Source is what counts as one client: an IPv4 address, or the /64 of an IPv6 address, which one
// site has to itself.
func Source(a netip.Addr) netip.Prefix {
	a = plain(a)
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// plain is an address as prefixes contain it: IPv4 as such, and without a zone.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
