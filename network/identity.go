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
func (g *greeting) identify() error {
	d := g.features.DatapathID
	if !g.cfg.BindCertificates {
		return nil
	}
	conn, ok := g.conn.(*tls.Conn)
	if !ok {
		return fmt.Errorf("switch %v: %w: it came without TLS", d, ErrIdentity)
	}
	certs := conn.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return fmt.Errorf("switch %v: %w: it showed no certificate", d, ErrIdentity)
	}
	if names(certs[0], d, g.cfg.Names[d]) {
		return nil
	}
	return fmt.Errorf("switch %v: %w: its certificate is for %q, which is neither this identifier nor the switch's name", d, ErrIdentity, certs[0].Subject.CommonName)
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
