package network

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/openflow"
)

// identify refuses a datapath identifier that the switch's certificate does not
// name, where certificates are bound to identifiers.
func (s *Switch) identify() error {
	if !s.n.cfg.BindCertificates {
		return nil
	}
	conn, ok := s.conn.(*tls.Conn)
	if !ok {
		return fmt.Errorf("switch %v: %w: it came without TLS", s.dpid, ErrIdentity)
	}
	certs := conn.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return fmt.Errorf("switch %v: %w: it showed no certificate", s.dpid, ErrIdentity)
	}
	if names(certs[0], s.dpid, s.n.cfg.Names[s.dpid]) {
		return nil
	}
	return fmt.Errorf("switch %v: %w: its certificate is for %q, which is neither this identifier nor the switch's name", s.dpid, ErrIdentity, certs[0].Subject.CommonName)
}

// names reports whether a certificate names a switch.
func names(cert *x509.Certificate, d openflow.DatapathID, called string) bool {
	for _, name := range append([]string{cert.Subject.CommonName}, cert.DNSNames...) {
		if called != "" && strings.EqualFold(name, called) {
			return true
		}
		if got, err := openflow.ParseDatapathID(name); err == nil && got == d {
			return true
		}
	}
	return false
}
