package api

import (
	"net/http"
	"strings"
)

// Accept adds a scheme of the Authorization header for senders with other credentials, such as
// mobile devices. check returns the sender's identity, or an error; it also decides what such
// credentials give access to. Accept must be called before Run.
func (a *API) Accept(scheme string, check func(*http.Request) (string, error)) {
	a.schemes[strings.ToLower(scheme)] = check
}

// identify returns the sender's identity, or the reason why it is unknown.
func (a *API) identify(r *http.Request, tokens []Token) (string, error) {
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	check := a.schemes[strings.ToLower(scheme)]
	if check == nil || a.opts.Auth.certificate(r) != nil {
		return a.opts.Auth.identify(r, tokens)
	}
	return check(r)
}
