package agent

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/sluice-net/sluice/pki"
)

// loadTLS returns the TLS configurations of the control server and of data connections; nil
// if there is no certificate.
func (c *Config) loadTLS() (control, data *tls.Config, err error) {
	control, data = c.TLS, c.DataTLS
	if c.Cert == "" {
		return control, data, nil
	}
	if control == nil {
		files := pki.Files{Cert: c.Cert, Key: c.Key, CA: c.CA, Roles: c.Roles}
		if control, err = pki.Server(files, true, pki.RoleController); err != nil {
			return nil, nil, err
		}
	}
	if data == nil {
		if data, err = c.readDataTLS(); err != nil {
			return nil, nil, err
		}
	}
	return control, data, nil
}

// readDataTLS returns the TLS configuration of data connections, for both sides. The
// session's key authenticates peers; the certificate only has to show that they are agents
// of the same authority, whatever their address.
func (c *Config) readDataTLS() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the agent: %w", err)
	}
	pem, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA: no certificate in %s", c.CA)
	}
	revocations, err := pki.NewRevocations(c.CA)
	if err != nil {
		return nil, err
	}
	config := DataTLS(cert, pool, c.Roles)
	config.VerifyConnection = revocations.Verify(config.VerifyConnection)
	return config, nil
}

// DataTLS returns the TLS configuration of data connections, for both sides, of an agent
// with the given certificate and the authorities in pool. roles gives the roles of other
// agents whose certificates name none.
func DataTLS(cert tls.Certificate, pool *x509.CertPool, roles pki.Mapping) *tls.Config {
	isAgent := roles.Require(pki.RoleAgent)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		ClientCAs: pool, ClientAuth: tls.RequireAnyClientCert,
		InsecureSkipVerify: true, // VerifyConnection checks the chain without a name
		VerifyConnection: func(s tls.ConnectionState) error {
			if err := verifyChain(s, pool); err != nil {
				return err
			}
			return isAgent(s)
		},
	}
}

// verifyChain checks that the authority has issued the other side's certificate.
func verifyChain(s tls.ConnectionState, pool *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("peer has no certificate")
	}
	rest := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		rest.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: rest, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}
