package testbed

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"
)

// quicPeer uses a QUIC connection whose client migrates.
type quicPeer struct {
	*peer
	conn *quic.Conn
}

const quicProtocol = "sluice-pulse"

// StartQUIC starts a conversation over QUIC.
func StartQUIC(ctx context.Context, o PeerOptions) (Peer, error) {
	p := &quicPeer{peer: newPeer(ctx, o)}
	if err := p.start(); err != nil {
		return nil, p.abandon(fmt.Errorf("QUIC: %w", err))
	}
	return p, nil
}

func (p *quicPeer) start() error {
	ctx, cancel := context.WithTimeout(p.ctx, dialTimeout)
	defer cancel()
	identity, err := temporaryCertificate()
	if err != nil {
		return err
	}
	listener, err := p.listen(identity)
	if err != nil {
		return err
	}
	near, err := p.transport(p.Device, netip.AddrPortFrom(p.First, 0))
	if err != nil {
		return err
	}
	if p.conn, err = near.Dial(ctx, net.UDPAddrFromAddrPort(p.Listen), clientTLS(identity), &quic.Config{}); err != nil {
		return err
	}
	p.closeAtStop(func() { _ = p.conn.CloseWithError(0, "") })
	far, err := listener.Accept(ctx)
	if err != nil {
		return err
	}
	p.closeAtStop(func() { _ = far.CloseWithError(0, "") })
	stream, err := p.conn.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	if _, err := stream.Write([]byte{0}); err != nil { // The server learns of a stream by its first byte.
		return err
	}
	back, err := far.AcceptStream(ctx)
	if err != nil {
		return err
	}
	p.spawn(func() { _ = p.pulse.sendFrom(p.ctx, 0, back) }) // These end with the connection.
	p.spawn(func() { _ = p.pulse.receiveFrom(stream) })
	p.spawn(func() { discardStream(back) })
	if p.Talks {
		p.spawn(func() { p.talk(stream) })
	}
	p.begin()
	p.spawn(func() {
		p.pulse.watch(p.ctx, p.Watch, func() { _ = p.Move(p.ctx) }) // A failure shows as silence.
	})
	return nil
}

func discardStream(s *quic.Stream) {
	block := make([]byte, 4096)
	for {
		if _, err := s.Read(block); err != nil {
			return
		}
	}
}

// talk sends a few bytes at intervals, as an application does that has data of its own to send.
func (p *quicPeer) talk(s *quic.Stream) {
	tick := time.NewTicker(talkInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := s.Write(make([]byte, pulseSize)); err != nil {
			return
		}
	}
}

// transport returns a QUIC transport on a socket of its own.
func (p *quicPeer) transport(at Inside, addr netip.AddrPort) (*quic.Transport, error) {
	var socket *net.UDPConn
	err := at.Do(func() (err error) {
		socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
		return err
	})
	if err != nil {
		return nil, err
	}
	t := &quic.Transport{Conn: socket}
	p.closeAtStop(func() { t.Close(); socket.Close() })
	return t, nil
}

func (p *quicPeer) listen(identity tls.Certificate) (*quic.Listener, error) {
	t, err := p.transport(p.Server, p.Listen)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{identity}, NextProtos: []string{quicProtocol}, MinVersion: tls.VersionTLS13}
	l, err := t.Listen(config, &quic.Config{})
	if err == nil {
		p.closeAtStop(func() { l.Close() })
	}
	return l, err
}

// Move implements Peer: the client probes the second link and switches to it.
func (p *quicPeer) Move(ctx context.Context) error {
	return p.moveOnce(func() error {
		if err := p.migrate(ctx); err != nil {
			return fmt.Errorf("%w: %w", errMove, err)
		}
		return nil
	})
}

func (p *quicPeer) migrate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	second, err := p.transport(p.Device, netip.AddrPortFrom(p.Second, 0))
	if err != nil {
		return err
	}
	path, err := p.conn.AddPath(second)
	if err != nil {
		return err
	}
	if err := path.Probe(ctx); err != nil {
		return err
	}
	return path.Switch()
}

// temporaryCertificate returns a certificate for this conversation only.
func temporaryCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{quicProtocol},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

func clientTLS(identity tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(identity.Leaf)
	return &tls.Config{RootCAs: roots, ServerName: quicProtocol, NextProtos: []string{quicProtocol}, MinVersion: tls.VersionTLS13}
}
