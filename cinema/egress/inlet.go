package egress

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/cinema/media"
)

// inlet is how a viewer's channels come to it.
type inlet interface {
	// port is where switches copy them to.
	port() uint16
	// run has the viewer take what comes, until ctx ends or nothing can come any more.
	run(ctx context.Context, v *viewer)
	// follow has come what is sent from these ports, 0 standing for any, and nothing else.
	follow(ports []uint16)
	// has says whether a channel from a port is here, so that it need not be sent again.
	has(port uint16, now time.Time) bool
	// group are the datagrams of a channel since its last key frame, as far as they are here.
	group(from netip.AddrPort, now time.Time) [][]byte
	// mayAsk says whether what is missing of a channel may be asked for, on behalf of all to
	// whom it comes.
	mayAsk(from netip.AddrPort, now time.Time) bool
	// close has nothing come any more; free gives the port back, when nobody copies there.
	close()
	free()
}

// inlet is one for another viewer.
func (g *Gateway) inlet() (inlet, error) {
	if g.hub != nil {
		return g.hub.inlet(), nil
	}
	port, socket, err := g.listen()
	if err != nil {
		return nil, err
	}
	return &ownPort{g, port, socket}, nil
}

// ownPort is a port for one viewer: switches copy to it what the viewer is to get.
type ownPort struct {
	g      *Gateway
	number uint16
	socket *net.UDPConn
}

func (p *ownPort) port() uint16                             { return p.number }
func (p *ownPort) follow([]uint16)                          {}
func (p *ownPort) has(uint16, time.Time) bool               { return false }
func (p *ownPort) group(netip.AddrPort, time.Time) [][]byte { return nil }
func (p *ownPort) mayAsk(netip.AddrPort, time.Time) bool    { return true }
func (p *ownPort) close()                                   { _ = p.socket.Close() }
func (p *ownPort) free()                                    { p.g.release(p.number) }

// run takes datagrams until the socket is closed. Those of nobody who was granted go nowhere.
func (p *ownPort) run(_ context.Context, v *viewer) {
	b := make([]byte, media.MaxDatagram+1)
	for {
		_ = p.socket.SetReadDeadline(v.due()) // fails only if it is closed
		n, from, err := p.socket.ReadFromUDPAddrPort(b)
		now := time.Now()
		switch e, isNet := err.(net.Error); {
		case err == nil:
			v.g.metrics.in.Add(uint64(n))
			v.take(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), b[:n], now)
		case isNet && e.Timeout():
			v.tick(now)
		default:
			return
		}
	}
}
