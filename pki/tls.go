package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/wholefile"
)

// recheck is the shortest time between two checks of a file for changes.
const recheck = 2 * time.Second

// maxFile is the largest file of certificates that is read, in bytes.
const maxFile = 16 << 20

// Files names a certificate, its key, and the authority of the peer.
type Files struct {
	Cert, Key, CA string
	// Roles maps holders whose certificates name no role. Without it such a certificate is
	// refused wherever a role is required.
	Roles Mapping
}

// files reads its Files again when they change.
type files struct {
	Files
	mu      sync.Mutex
	checked time.Time
	stamp   string
	cert    *tls.Certificate
	pool    *x509.CertPool
}

// load returns the content of the files. If they have become unreadable, for instance because
// they are being replaced, it returns the previous content.
func (f *files) load() (*tls.Certificate, *x509.CertPool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stamp != "" && time.Since(f.checked) < recheck {
		return f.cert, f.pool, nil
	}
	f.checked = time.Now()
	stamp := f.modified()
	if stamp == f.stamp && f.stamp != "" {
		return f.cert, f.pool, nil
	}
	cert, pool, err := f.read()
	if err != nil {
		if f.stamp != "" {
			return f.cert, f.pool, nil
		}
		return nil, nil, err
	}
	f.cert, f.pool, f.stamp = cert, pool, stamp
	return cert, pool, nil
}

func (f *files) modified() string {
	stamp := "read"
	for _, name := range []string{f.Cert, f.Key, f.CA} {
		if info, err := os.Stat(name); err == nil {
			stamp += fmt.Sprintf(" %d:%d", info.ModTime().UnixNano(), info.Size())
		}
	}
	return stamp
}

func (f *files) read() (*tls.Certificate, *x509.CertPool, error) {
	var cert *tls.Certificate
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, nil, fmt.Errorf("pki: certificate %s with key %s: %w", f.Cert, f.Key, err)
		}
		cert = &pair
	}
	if f.CA == "" {
		return cert, nil, nil
	}
	b, err := wholefile.Read(f.CA, maxFile)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, nil, fmt.Errorf("pki: authority %s: no certificate in PEM form in it", f.CA)
	}
	return cert, pool, nil
}

// verifier returns a check of the peer's certificate: the authority must not have revoked it,
// and its holder must have one of the roles.
func verifier(names Files, roles []Role) (func(tls.ConnectionState) error, error) {
	require := names.Roles.Require(roles...)
	if names.CA == "" {
		return require, nil
	}
	revocations, err := NewRevocations(names.CA)
	if err != nil {
		return nil, err
	}
	return revocations.Verify(require), nil
}

// Server returns the TLS configuration of a server with the certificate. If an authority is
// named, clients may present one of its certificates, and must if required is true; the holder
// must have one of roles, if there are any.
func Server(names Files, required bool, roles ...Role) (*tls.Config, error) {
	f := &files{Files: names}
	if _, _, err := f.load(); err != nil {
		return nil, err
	}
	verify, err := verifier(names, roles)
	if err != nil {
		return nil, err
	}
	base := &tls.Config{MinVersion: tls.VersionTLS12, VerifyConnection: verify}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		cert, pool, err := f.load()
		if err != nil {
			return nil, err
		}
		c := &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*cert},
			NextProtos: base.NextProtos, VerifyConnection: verify,
		}
		if pool != nil {
			c.ClientCAs, c.ClientAuth = pool, tls.VerifyClientCertIfGiven
			if required {
				c.ClientAuth = tls.RequireAndVerifyClientCert
			}
		}
		return c, nil
	}
	// tls.NewListener requires a certificate or this function.
	base.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert, _, err := f.load()
		return cert, err
	}
	return base, nil
}

// Client returns the TLS configuration of a client that trusts the authority, and that presents the
// certificate if one is named. The server must have one of roles, if there are any. A renewed
// certificate is used without a restart; a new authority needs one.
func Client(names Files, roles ...Role) (*tls.Config, error) {
	f := &files{Files: names}
	_, pool, err := f.load()
	if err != nil {
		return nil, err
	}
	verify, err := verifier(names, roles)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, VerifyConnection: verify}
	if names.Cert != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, _, err := f.load()
			return cert, err
		}
	}
	return c, nil
}
