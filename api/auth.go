package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/pki"
)

// Auth decides which requests are accepted. The zero value accepts only requests for public
// paths (health and the API's own documentation).
type Auth struct {
	// Tokens are the bearer tokens that are accepted until SetTokens replaces them.
	Tokens []Token
	// ClientCerts accepts requests whose TLS client certificate the server has verified.
	ClientCerts bool
	// Revoked, if not nil, returns an error for certificates that were revoked after their
	// connection was made.
	Revoked func(*x509.Certificate) error
	// Roles gives roles to holders whose certificates name none. A holder without a role has no
	// access.
	Roles pki.Mapping
	// OpenReads accepts reading requests without authentication if they arrive on a loopback
	// address under a loopback name. The name is checked so that a web page cannot read the API
	// through a host name that points to this machine.
	OpenReads bool
}

// Token is a bearer token. Only its hash is kept.
type Token struct {
	// Name is the token's user, for the log.
	Name string
	hash [sha256.Size]byte
}

// NewToken returns the token with the secret.
func NewToken(name, secret string) Token {
	return Token{Name: name, hash: sha256.Sum256([]byte(secret))}
}

type identityKey struct{}

// Identity returns the sender of the context's request: "token:" and the token's name, "certificate:"
// and the client certificate's common name, the identity that a check of Accept has returned, or ""
// for a request without authentication.
func Identity(ctx context.Context) string {
	name, _ := ctx.Value(identityKey{}).(string)
	return name
}

type roleKey struct{}

// Role returns the role in the certificate of the sender of the context's request. It is empty
// for other credentials. An operator may have a certificate with the same name as a neighbour,
// so code that depends on the name must check the role as well.
func Role(ctx context.Context) pki.Role {
	role, _ := ctx.Value(roleKey{}).(pki.Role)
	return role
}

var errNoCredentials = errors.New("no credentials: send \"Authorization: Bearer TOKEN\" (the token is in the controller's token file) or use a client certificate")

// Permit gives holders of a certificate with the role access to one operation. Roles other than
// operator and controller have access only to operations that Permit names, because an agent's
// certificate is on many machines.
func (a *API) Permit(role pki.Role, method, path string) {
	a.permissions[permission{role, method, path}] = true
}

type permission struct {
	role         pki.Role
	method, path string
}

// isAdmin reports whether the role may call every operation.
func isAdmin(role pki.Role) bool {
	return role == pki.RoleOperator || role == pki.RoleController
}

var (
	errNotPermitted = errors.New("certificates of this role may not do this: use one of an operator, or a token")
	errNoRole       = errors.New("the certificate names no role: use one of \"sluice pki issue operator\", or map its common name to a role in the controller's configuration, under api.tls.roles")
)

// identify returns the sender's identity, or the reason why it is unknown.
func (a *Auth) identify(r *http.Request, tokens []Token) (string, error) {
	if cert := a.certificate(r); cert != nil {
		return "certificate:" + cert.Subject.CommonName, nil
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		return "", errNoCredentials
	}
	scheme, secret, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", errors.New("the Authorization header must read \"Bearer TOKEN\"")
	}
	hash := sha256.Sum256([]byte(strings.TrimSpace(secret)))
	found := ""
	for _, t := range tokens {
		if subtle.ConstantTimeCompare(hash[:], t.hash[:]) == 1 {
			found = tokenIdentity + t.Name
		}
	}
	if found == "" {
		return "", errors.New("the bearer token is not one of this controller's")
	}
	return found, nil
}

// certificate returns the client's verified certificate, or nil.
func (a *Auth) certificate(r *http.Request) *x509.Certificate {
	if !a.ClientCerts || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return r.TLS.VerifiedChains[0][0]
}

// checkRevoked returns an error for a request on a connection whose certificate has been
// revoked.
func (a *Auth) checkRevoked(r *http.Request) error {
	cert := a.certificate(r)
	if cert == nil || a.Revoked == nil {
		return nil
	}
	return a.Revoked(cert)
}

// isPublic reports whether the request is for a public handler.
func (a *API) isPublic(r *http.Request) bool {
	_, pattern := a.mux.Handler(r)
	return a.publicPatterns[pattern]
}

// isOpenRead reports whether OpenReads accepts the request without authentication.
func (a *Auth) isOpenRead(r *http.Request) bool {
	if !a.OpenReads || (r.Method != http.MethodGet && r.Method != http.MethodHead) {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && isLoopbackAddr(local) && isLoopbackName(r.Host)
}

func isLoopbackAddr(a net.Addr) bool {
	if a.Network() == "unix" {
		return true
	}
	ap, err := netip.ParseAddrPort(a.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}

func isLoopbackName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// authenticate passes on authenticated requests, and requests that need no authentication. It
// refuses all others.
func (a *API) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = withRemote(r)
		if err := a.opts.Auth.checkRevoked(r); err != nil {
			w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
			a.refuse(w, r, http.StatusUnauthorized, "", err)
			return
		}
		tokens := a.tokens.Load()
		name, err := a.identify(r, tokens.all)
		if cert := a.opts.Auth.certificate(r); cert != nil && !a.isPublic(r) {
			role := a.opts.Auth.Roles.RoleOf(cert)
			if role == "" {
				a.refuse(w, r, http.StatusForbidden, cert.Subject.CommonName, errNoRole)
				return
			}
			if !isAdmin(role) && !a.permissions[permission{role, r.Method, r.URL.Path}] {
				a.refuse(w, r, http.StatusForbidden, "certificate of role "+string(role), errNotPermitted)
				return
			}
			r = r.WithContext(context.WithValue(r.Context(), roleKey{}, role))
		}
		switch {
		case err == nil:
			ctx := context.WithValue(r.Context(), identityKey{}, name)
			if strings.HasPrefix(name, tokenIdentity) {
				ctx = context.WithValue(ctx, tokensKey{}, tokens)
			}
			r = r.WithContext(ctx)
		case a.isPublic(r), a.opts.Auth.isOpenRead(r) && errors.Is(err, errNoCredentials):
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
			a.refuse(w, r, http.StatusUnauthorized, "", err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *API) refuse(w http.ResponseWriter, r *http.Request, status int, value string, why error) {
	a.refusals.Warn(a.opts.Log, "request refused", "method", r.Method, "path", r.URL.Path, "from", r.RemoteAddr, "reason", why)
	detail := &huma.ErrorDetail{Location: "header.Authorization", Message: why.Error()}
	if value != "" {
		detail.Location, detail.Value = "certificate", value
	}
	WriteProblem(w, &huma.ErrorModel{Status: status, Detail: why.Error(), Errors: []*huma.ErrorDetail{detail}})
}
