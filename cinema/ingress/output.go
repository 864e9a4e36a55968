package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// mediaMAC is where datagrams to the media address go. No interface has it.
var mediaMAC = net.HardwareAddr{0x02, 0x00, 0xc6, 0x12, 0x00, 0x01}

// output is where a channel's datagrams go out. It is safe for concurrent use.
type output interface {
	send(b []byte, to netip.AddrPort) error
	Close() error
}

// udpOutput is a socket.
type udpOutput struct {
	*net.UDPConn
	leave func() // takes the neighbour away
}

// network is what a gateway has in its kernel: sockets, and the entries in the table of
// neighbours by which nobody has to answer who has a media address.
type network struct {
	from netip.Addr // the data address
	log  *slog.Logger

	mu   sync.Mutex
	have map[netip.Addr]int // how many outputs go there
}

// open opens a socket that sends from the data address and a port, by the interface that has
// the address: so the kernel needs no route to where it sends. to is the media address.
func (n *network) open(to netip.Addr, port uint16) (output, error) {
	link, err := linkOf(n.from)
	if err != nil {
		return nil, err
	}
	device := link.Attrs().Name
	bind := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var bound error
		if err := c.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), device) }); err != nil {
			return err
		}
		if bound != nil {
			return fmt.Errorf("bind to %s: %w (the gateway needs CAP_NET_RAW)", device, bound)
		}
		return nil
	}}
	conn, err := bind.ListenPacket(context.Background(), "udp4", netip.AddrPortFrom(n.from, port).String())
	if err != nil {
		return nil, fmt.Errorf("port %d for a channel: %w", port, err)
	}
	if err := n.meet(to, link); err != nil {
		_ = conn.Close()
		return nil, err
	}
	udp := conn.(*net.UDPConn)
	_ = udp.SetWriteBuffer(1 << 20) // as much of it as the kernel permits
	return udpOutput{udp, sync.OnceFunc(func() { n.part(to, link) })}, nil
}

// Close closes the socket.
func (o udpOutput) Close() error {
	o.leave()
	return o.UDPConn.Close()
}

func (o udpOutput) send(b []byte, to netip.AddrPort) error {
	if _, err := o.WriteToUDPAddrPort(b, to); err != nil {
		return fmt.Errorf("send to %v: %w", to, err)
	}
	return nil
}

// linkOf is the interface that has an address.
func linkOf(addr netip.Addr) (netlink.Link, error) {
	all, err := netlink.AddrList(nil, unix.AF_INET)
	if err != nil {
		return nil, fmt.Errorf("interface of %v: %w", addr, err)
	}
	for _, a := range all {
		if ip, ok := netip.AddrFromSlice(a.IP.To4()); ok && ip == addr {
			return netlink.LinkByIndex(a.LinkIndex)
		}
	}
	return nil, fmt.Errorf("no interface has the data address %v", addr)
}

// meet makes an entry for a media address that has none yet.
func (n *network) meet(to netip.Addr, by netlink.Link) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.have[to] == 0 {
		if err := netlink.NeighSet(neighbour(to, by)); err != nil {
			return fmt.Errorf("neighbour %v: %w (the gateway needs CAP_NET_ADMIN)", to, err)
		}
	}
	n.have[to]++
	return nil
}

// part takes an entry away with the last output that goes there.
func (n *network) part(to netip.Addr, by netlink.Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.have[to]--; n.have[to] > 0 {
		return
	}
	delete(n.have, to)
	if err := netlink.NeighDel(neighbour(to, by)); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
		n.log.Warn("a neighbour is left", "address", to, "interface", by.Attrs().Name, "error", err)
	}
}

func neighbour(to netip.Addr, by netlink.Link) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: by.Attrs().Index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT, IP: to.AsSlice(), HardwareAddr: mediaMAC,
	}
}
