// Package clientaddr finds the client to which an HTTP request belongs, for limits that apply to
// each client: by the address of the connection or, behind a trusted reverse proxy, by
// X-Forwarded-For or Forwarded. Start reading with Proxies.
package clientaddr

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Headers in which a proxy names the client of a request.
const (
	XForwardedFor = "X-Forwarded-For"
	Forwarded     = "Forwarded" // RFC 7239
)

// maxHops is the largest number of addresses in a header that Client looks at.
const maxHops = 16

// Proxies are trusted reverse proxies. The zero value trusts no proxy.
type Proxies struct {
	// Trusted holds the addresses of the proxies, whose header is believed.
	Trusted []netip.Prefix
	// Header is the header that the proxies write, XForwardedFor or Forwarded; empty means
	// XForwardedFor. The other header is ignored, because proxies pass on what the client has written
	// there.
	Header string
}

// Trust reports whether an address is that of a trusted proxy.
func (p Proxies) Trust(a netip.Addr) bool {
	a = plain(a)
	return slices.ContainsFunc(p.Trusted, func(x netip.Prefix) bool { return x.Contains(a) })
}

// Client returns the address of the client that has sent a request. That is the address of the
// connection or, if the connection comes from a trusted proxy, the last address in the proxies' header
// that is not a trusted proxy's. Addresses before that one are ignored, because the client itself
// may have written them. If an entry of the header cannot be parsed, Client returns the address of
// the last proxy before it. It returns the zero Addr if the connection has no IP address.
func (p Proxies) Client(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	client := plain(from.Addr())
	hops := strings.Split(strings.Join(r.Header.Values(cmp.Or(p.Header, XForwardedFor)), ","), ",")
	for _, hop := range slices.Backward(hops[max(0, len(hops)-maxHops):]) {
		if !p.Trust(client) {
			break
		}
		if p.Header == Forwarded {
			hop = forwardedFor(hop)
		}
		a, ok := parseHop(hop)
		if !ok {
			break
		}
		client = plain(a)
	}
	return client
}

// forwardedFor returns the client in an element of Forwarded, or "" unless there is exactly one. It splits
// at each semicolon, and its caller at each comma, also within quotation marks: an address has neither, and
// an element that is cut there has no client.
func forwardedFor(element string) (client string) {
	for pair := range strings.SplitSeq(element, ";") {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "for") {
			continue
		}
		if client != "" {
			return ""
		}
		client = strings.TrimSpace(value)
		if inner, ok := strings.CutPrefix(client, `"`); ok {
			if client, ok = strings.CutSuffix(inner, `"`); !ok {
				return ""
			}
		}
	}
	return client
}

// parseHop parses an address with or without a port, and with or without brackets.
func parseHop(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if a, err := netip.ParseAddrPort(text); err == nil {
		return a.Addr(), true
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		if text, ok = strings.CutSuffix(inner, "]"); !ok {
			return netip.Addr{}, false
		}
	}
	a, err := netip.ParseAddr(text)
	return a, err == nil
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
