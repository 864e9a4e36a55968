package network

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// handshake is what is said first on a new connection: hellos and features. It is not yet a
// session.
type handshake struct {
	cfg      *Config
	conn     net.Conn
	xid      uint32 // the latest
	features openflow.FeaturesReply
}

// exchange has one deadline for all of it, and anything unexpected ends it.
func (g *handshake) exchange(r *openflow.Reader) error {
	_ = g.conn.SetDeadline(time.Now().Add(g.cfg.RequestTimeout))
	if err := g.request(openflow.NewHello()); err != nil {
		return err
	}
	if err := g.readHello(r); err != nil {
		return err
	}
	if err := g.request(&openflow.FeaturesRequest{}); err != nil {
		return err
	}
	for range maxEarlyMessages {
		m, err := r.Next()
		if err != nil {
			return err
		}
		switch openflow.MsgType(m[1]) {
		case openflow.TypeFeaturesReply:
			if err := g.features.Decode(m); err != nil {
				return err
			}
			if g.features.AuxiliaryID != 0 {
				return fmt.Errorf("auxiliary connection %d of switch %v: not supported", g.features.AuxiliaryID, g.features.DatapathID)
			}
			if err := g.checkIdentity(); err != nil {
				return err
			}
			return g.conn.SetDeadline(time.Time{})
		case openflow.TypeEchoRequest:
			if err := g.write(echoReply(m), openflow.XID(m)); err != nil {
				return err
			}
		case openflow.TypeError:
			e := new(openflow.Error)
			if err := e.Decode(m); err != nil {
				return err
			}
			return e
		}
	}
	return fmt.Errorf("no features reply among the first %d messages", maxEarlyMessages)
}

const (
	// maxEarlyMessages bounds what a switch may send before its features.
	maxEarlyMessages = 1000
	// maxHandshakeMessage is the length of the longest message that is taken before the switch has said
	// which it is.
	maxHandshakeMessage = 4 << 10
)

func (g *handshake) readHello(r *openflow.Reader) error {
	m, err := r.Next()
	if err != nil {
		return fmt.Errorf("waiting for hello: %w", err)
	}
	var h openflow.Hello
	if err := h.Decode(m); err != nil {
		return err
	}
	if h.Speaks(openflow.Version) {
		return nil
	}
	err = fmt.Errorf("the switch does not speak OpenFlow 1.3: %v", &h)
	_ = g.write(&openflow.Error{Code: openflow.HelloIncompatible, Data: []byte("OpenFlow 1.3 is required")}, openflow.XID(m))
	return err
}

func (g *handshake) request(m openflow.Message) error {
	g.xid++
	return g.write(m, g.xid)
}

// write sends one message: nobody else writes yet.
func (g *handshake) write(m openflow.Message, xid uint32) error {
	b, err := m.AppendTo(nil, xid)
	if err != nil {
		return err
	}
	_, err = g.conn.Write(b)
	return err
}

// checkIdentity refuses a datapath identifier that the switch's certificate does not
// name, where certificates are bound to identifiers.
func (g *handshake) checkIdentity() error {
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
	if certificateNames(certs[0], d, g.cfg.Names[d]) {
		return nil
	}
	return fmt.Errorf("switch %v: %w: its certificate is for %q, which is neither this identifier nor the switch's name", d, ErrIdentity, certs[0].Subject.CommonName)
}

// certificateNames reports whether a certificate names a switch.
func certificateNames(cert *x509.Certificate, d openflow.DatapathID, name string) bool {
	for _, certName := range append([]string{cert.Subject.CommonName}, cert.DNSNames...) {
		if name != "" && strings.EqualFold(certName, name) {
			return true
		}
		if got, err := openflow.ParseDatapathID(certName); err == nil && got == d {
			return true
		}
	}
	return false
}
