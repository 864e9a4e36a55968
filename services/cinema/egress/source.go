package egress

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/services/cinema/media"
)

// source receives a viewer's channels.
type source interface {
	// port returns the port to which switches copy them.
	port() uint16
	// run passes datagrams to the viewer until ctx ends or the source is closed.
	run(ctx context.Context, v *viewer)
	// setPorts accepts datagrams from the given source ports only; 0 matches any port.
	setPorts(ports []uint16)
	// hasChannel reports whether a channel from a port is cached, so that no burst is needed.
	hasChannel(port uint16, now time.Time) bool
	// group returns the cached datagrams of a channel since its last key frame.
	group(from netip.AddrPort, now time.Time) [][]byte
	// allowRepair reports whether missing packets of a channel may be requested, on behalf of
	// all viewers of the source.
	allowRepair(from netip.AddrPort, now time.Time) bool
	// close stops the source. releasePort frees its port, once nobody copies to it any more.
	close()
	releasePort()
}

// newSource returns a source for another viewer.
func (g *Gateway) newSource() (source, error) {
	if g.hub != nil {
		return g.hub.newSource(), nil
	}
	port, socket, err := g.listen()
	if err != nil {
		return nil, err
	}
	return &portSource{g, port, socket}, nil
}

// portSource is a port for one viewer, to which switches copy the viewer's channels.
type portSource struct {
	g          *Gateway
	portNumber uint16
	socket     *net.UDPConn
}

func (p *portSource) port() uint16                               { return p.portNumber }
func (p *portSource) setPorts([]uint16)                          {}
func (p *portSource) hasChannel(uint16, time.Time) bool          { return false }
func (p *portSource) group(netip.AddrPort, time.Time) [][]byte   { return nil }
func (p *portSource) allowRepair(netip.AddrPort, time.Time) bool { return true }
func (p *portSource) close()                                     { _ = p.socket.Close() }
func (p *portSource) releasePort()                               { p.g.release(p.portNumber) }

// run reads datagrams until the socket is closed. The viewer drops those from unexpected
// sources.
func (p *portSource) run(_ context.Context, v *viewer) {
	b := make([]byte, media.MaxDatagram+1)
	for {
		_ = p.socket.SetReadDeadline(v.due()) // fails only if the socket is closed
		n, from, err := p.socket.ReadFromUDPAddrPort(b)
		now := time.Now()
		switch e, isNet := err.(net.Error); {
		case err == nil:
			v.g.metrics.in.Add(uint64(n))
			v.receive(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), b[:n], now)
		case isNet && e.Timeout():
			v.tick(now)
		default:
			return
		}
	}
}
