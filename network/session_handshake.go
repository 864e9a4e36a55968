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

// handshake is the first exchange on a new connection: hellos and features. The session begins
// after it.
type handshake struct {
	cfg      *Config
	conn     net.Conn
	xid      uint32 // the latest one used
	features openflow.FeaturesReply
}

// exchange performs the handshake within one deadline. It ignores a bounded number of other
// messages before the features reply. An error message of the switch ends the handshake.
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
	// maxEarlyMessages is the number of messages that a switch may send before its features.
	maxEarlyMessages = 1000
	// maxHandshakeMessage is the maximum length of a message before the switch has reported its
	// identifier.
	maxHandshakeMessage = 4 << 10
)

// readHello reads the switch's hello and negotiates the version.
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

// request sends a message with the next transaction identifier.
func (g *handshake) request(m openflow.Message) error {
	g.xid++
	return g.write(m, g.xid)
}

// write sends one message. No other goroutine writes to the connection yet.
func (g *handshake) write(m openflow.Message, xid uint32) error {
	b, err := m.AppendTo(nil, xid)
	if err != nil {
		return err
	}
	_, err = g.conn.Write(b)
	return err
}

// checkIdentity returns an error if identifiers are bound to certificates and the switch's
// certificate does not name its datapath identifier.
func (g *handshake) checkIdentity() error {
	d := g.features.DatapathID
	if !g.cfg.BindCertificates {
		return nil
	}
	conn, ok := g.conn.(*tls.Conn)
	if !ok {
		return fmt.Errorf("switch %v: %w: it connected without TLS", d, ErrIdentity)
	}
	certs := conn.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return fmt.Errorf("switch %v: %w: it presented no certificate", d, ErrIdentity)
	}
	if certificateNames(certs[0], d, g.cfg.Names[d]) {
		return nil
	}
	return fmt.Errorf("switch %v: %w: its certificate is for %q, which is neither this identifier nor the switch's name", d, ErrIdentity, certs[0].Subject.CommonName)
}

// certificateNames reports whether a certificate names a switch, by its datapath identifier or by
// its configured name.
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
