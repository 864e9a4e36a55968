package api

import (
	"context"
	"net/http"
	"net/netip"
)

type remoteKey struct{}

// Remote returns the address that the request came from which the context belongs
// to. It is not valid where there is none, as on a Unix socket. Behind a proxy it is
// the proxy's.
func Remote(ctx context.Context) netip.Addr {
	a, _ := ctx.Value(remoteKey{}).(netip.Addr)
	return a
}

// withRemote notes where a request came from.
func withRemote(r *http.Request) *http.Request {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), remoteKey{}, from.Addr().Unmap()))
}
