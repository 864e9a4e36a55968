package api

import (
	"context"
	"net/http"
	"net/netip"
)

type remoteKey struct{}

// Remote returns the address from which the context's request came. It is invalid if the sender has
// none, as on a Unix socket. Behind a proxy it is the proxy's address.
func Remote(ctx context.Context) netip.Addr {
	a, _ := ctx.Value(remoteKey{}).(netip.Addr)
	return a
}

// withRemote adds the sender's address to the request's context.
func withRemote(r *http.Request) *http.Request {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), remoteKey{}, from.Addr().Unmap()))
}
