package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// mptcpPeer uses the kernel's Multipath TCP with a subflow over each link.
type mptcpPeer struct{ *peer }

// StartMPTCP starts a conversation over Multipath TCP, and returns when both subflows are
// established. The device's namespace must not have MPTCP endpoints of its own.
func StartMPTCP(ctx context.Context, o PeerOptions) (Peer, error) {
	p := &mptcpPeer{newPeer(ctx, o)}
	if err := p.start(); err != nil {
		return nil, p.abandon(fmt.Errorf("MPTCP: %w", err))
	}
	return p, nil
}

func (p *mptcpPeer) start() error {
	for _, host := range []Node{p.Device, p.Server} {
		if err := p.ip(host, "limits", "set", "subflows", "2", "add_addr_accepted", "2"); err != nil {
			return err
		}
	}
	endpoint := []string{"endpoint", "add", p.Second.String(), "subflow"}
	if p.Backup {
		endpoint = append(endpoint, "backup")
	}
	if err := p.ip(p.Device, endpoint...); err != nil {
		return err
	}
	p.closeAtStop(func() { _ = p.ip(p.Device, "endpoint", "flush") })
	device, server, err := p.connect()
	if err != nil {
		return err
	}
	for _, c := range []net.Conn{device, server} {
		if multi, err := c.(*net.TCPConn).MultipathTCP(); err != nil || !multi {
			return errors.Join(err, errors.New("the kernel fell back to plain TCP"))
		}
	}
	if err := p.joined(); err != nil {
		return err
	}
	p.spawn(func() { _ = p.pulse.sendFrom(p.ctx, 0, server) }) // Both end with the connection.
	p.spawn(func() { _ = p.pulse.receiveFrom(device) })
	p.begin()
	return nil
}

// connect opens the connection. The kernel adds a subflow only after the first bytes have been
// acknowledged.
func (p *mptcpPeer) connect() (device, server net.Conn, err error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	listener, err := p.listenTCP(lc)
	if err != nil {
		return nil, nil, err
	}
	var d net.Dialer
	d.SetMultipathTCP(true)
	if device, err = p.dialTCP(p.First, d); err != nil {
		return nil, nil, err
	}
	if server, err = listener.Accept(); err != nil {
		return nil, nil, err
	}
	p.closeAtStop(func() { server.Close() })
	hello := make([]byte, 1)
	if _, err = device.Write(hello); err == nil {
		_, err = io.ReadFull(server, hello)
	}
	return device, server, err
}

// joined waits until the subflow over the second link is established.
func (p *mptcpPeer) joined() error {
	return Poll(p.ctx, "the second subflow", func() error {
		out, err := p.Device.Command(p.ctx, "ss", "-Htn", "state", "established", "src", p.Second.String(), "dst", p.Listen.String()).Output()
		if err == nil && len(strings.TrimSpace(string(out))) == 0 {
			err = errors.New("there is one subflow")
		}
		return err
	})
}

func (p *mptcpPeer) ip(host Node, args ...string) error {
	// The peer's context has ended when endpoints are removed, so this one is independent of it.
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	return run(ctx, host, "ip", append([]string{"mptcp"}, args...)...)
}

// Move implements Peer: it tells the kernel that the first address will be removed, as a network
// manager does.
func (p *mptcpPeer) Move(context.Context) error {
	return p.moveOnce(func() error {
		if err := p.ip(p.Device, "endpoint", "delete", "id", "0", p.First.String()); err != nil {
			return fmt.Errorf("%w: %w", errMove, err)
		}
		return nil
	})
}
