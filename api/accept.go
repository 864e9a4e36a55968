package api

import (
	"net/http"
	"strings"
)

// Accept adds a scheme of the Authorization header for what has credentials of
// its own, like a mobile device. check returns who sends the request, or why it is
// not let in: what such credentials open is for it to decide. Call it before Run.
func (a *API) Accept(scheme string, check func(*http.Request) (string, error)) {
	a.schemes[strings.ToLower(scheme)] = check
}

// identify returns who sends the request, or why that is unknown.
func (a *API) identify(r *http.Request, tokens []Token) (string, error) {
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	check := a.schemes[strings.ToLower(scheme)]
	if check == nil || a.opts.Auth.certificate(r) != nil {
		return a.opts.Auth.identify(r, tokens)
	}
	return check(r)
}
