// Package clientaddr finds the client to which an HTTP request belongs, for limits that apply to
// each client: by the address of the connection or, behind a trusted reverse proxy, by
// X-Forwarded-For. Start reading with Proxies.
package clientaddr

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxHops is the largest number of addresses in X-Forwarded-For that Client looks at.
const maxHops = 16

// Proxies are the addresses of trusted reverse proxies, whose X-Forwarded-For is believed. Nil
// trusts no proxy.
type Proxies []netip.Prefix

// Trust reports whether an address is that of a trusted proxy.
func (p Proxies) Trust(a netip.Addr) bool {
	a = plain(a)
	return slices.ContainsFunc(p, func(x netip.Prefix) bool { return x.Contains(a) })
}

// Client returns the address of the client that has sent a request. That is the address of the
// connection or, if the connection comes from a trusted proxy, the last address in X-Forwarded-For
// that is not a trusted proxy's. Addresses before that one are ignored, because the client itself
// may have written them. If an entry of X-Forwarded-For cannot be parsed, Client returns the
// address of the last proxy before it. It returns the zero Addr if the connection has no IP
// address.
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

// Source returns the prefix that is treated as one client: an IPv4 address, or the /64 of an IPv6
// address, because one site usually has a whole /64.
func Source(a netip.Addr) netip.Prefix {
	a = plain(a)
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// plain returns an address in the form that prefixes contain: an IPv4-mapped address as IPv4, and
// without a zone.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
