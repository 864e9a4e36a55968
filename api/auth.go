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

// Auth decides which requests pass. The zero value lets nothing pass but the
// public paths (health and the API's own documentation).
type Auth struct {
	// Tokens are the bearer tokens that are accepted until SetTokens replaces them.
	Tokens []Token
	// ClientCerts accepts requests whose TLS client certificate the server has
	// verified.
	ClientCerts bool
	// Revoked, if set, refuses certificates that have been revoked since their
	// connection was made.
	Revoked func(*x509.Certificate) error
	// Roles are those of holders whose certificates name none. Who has no role may
	// do nothing.
	Roles pki.Mapping
	// OpenReads lets reading requests pass unauthenticated when they arrive on
	// a loopback address under a loopback name (the name is checked so that a
	// web page cannot read the API through a host name it made point here).
	OpenReads bool
}

// Token is a bearer token, kept as its hash only.
type Token struct {
	// Name is who uses it, for the log.
	Name string
	hash [sha256.Size]byte
}

// NewToken returns the token with the secret.
func NewToken(name, secret string) Token {
	return Token{Name: name, hash: sha256.Sum256([]byte(secret))}
}

type identityKey struct{}

// Identity returns who sent the request that the context belongs to: the
// token's name, the client certificate's common name, or "" for an
// unauthenticated read.
func Identity(ctx context.Context) string {
	name, _ := ctx.Value(identityKey{}).(string)
	return name
}

type roleKey struct{}

// Role returns the role in the certificate of the sender of the request that the
// context belongs to. It is empty for other credentials. An operator may have a
// certificate of the same name as a neighbour: who acts on the name alone must
// look at the role.
func Role(ctx context.Context) pki.Role {
	role, _ := ctx.Value(roleKey{}).(pki.Role)
	return role
}

var errNoCredentials = errors.New("no credentials: send \"Authorization: Bearer TOKEN\" (the token is in the controller's token file) or use a client certificate")

// Permit lets holders of a certificate with the role, which is not one of an
// operator or controller, use one operation. Without it they may use none: an
// agent's certificate is on many machines.
func (a *API) Permit(role pki.Role, method, path string) {
	a.permitted[permission{role, method, path}] = true
}

type permission struct {
	role         pki.Role
	method, path string
}

// mayAll says whether a role opens everything.
func mayAll(role pki.Role) bool {
	return role == pki.RoleOperator || role == pki.RoleController
}

var (
	errNotPermitted = errors.New("certificates of this role may not do this: use one of an operator, or a token")
	errNoRole       = errors.New("the certificate names no role: use one of \"sluice pki issue operator\", or map its common name to a role in the controller's configuration, under api.tls.roles")
)

// identify returns who sends the request, or why that is unknown.
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

// revoked refuses requests on connections whose certificate has been revoked.
func (a *Auth) revoked(r *http.Request) error {
	cert := a.certificate(r)
	if cert == nil || a.Revoked == nil {
		return nil
	}
	return a.Revoked(cert)
}

// public says whether the request is for a handler that is open to everybody.
func (a *API) public(r *http.Request) bool {
	_, pattern := a.mux.Handler(r)
	return a.open[pattern]
}

// openRead says whether the request may pass unauthenticated because of
// OpenReads.
func (a *Auth) openRead(r *http.Request) bool {
	if !a.OpenReads || (r.Method != http.MethodGet && r.Method != http.MethodHead) {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && loopbackAddr(local) && loopbackName(r.Host)
}

func loopbackAddr(a net.Addr) bool {
	if a.Network() == "unix" {
		return true
	}
	ap, err := netip.ParseAddrPort(a.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}

func loopbackName(host string) bool {
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

// gate lets authenticated requests through, and those that need not be.
func (a *API) gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = withRemote(r)
		if err := a.opts.Auth.revoked(r); err != nil {
			w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
			a.refuse(w, r, http.StatusUnauthorized, "", err)
			return
		}
		tokens := a.tokens.Load()
		name, err := a.identify(r, tokens.all)
		if cert := a.opts.Auth.certificate(r); cert != nil && !a.public(r) {
			role := a.opts.Auth.Roles.RoleOf(cert)
			if role == "" {
				a.refuse(w, r, http.StatusForbidden, cert.Subject.CommonName, errNoRole)
				return
			}
			if !mayAll(role) && !a.permitted[permission{role, r.Method, r.URL.Path}] {
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
		case a.public(r), a.opts.Auth.openRead(r) && errors.Is(err, errNoCredentials):
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
