package ingress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/drift"
)

// mediaMAC is the destination MAC address of datagrams to a media address. No interface has it.
var mediaMAC = net.HardwareAddr{0x02, 0x00, 0xc6, 0x12, 0x00, 0x01}

// output sends a channel's datagrams. It is safe for concurrent use.
type output interface {
	send(b []byte, to netip.AddrPort) error
	Close() error
}

// udpOutput is an output that uses a socket.
type udpOutput struct {
	*net.UDPConn
	release func() // removes the neighbour entry
}

// outputs opens the sockets of channels. It also adds permanent neighbour entries for media
// addresses, because no host would answer for them.
type outputs struct {
	from netip.Addr // data address of the gateway
	log  *slog.Logger

	mu         sync.Mutex
	neighbours map[netip.Addr]*mediaNeighbour // by media address
}

// mediaNeighbour is the neighbour entry of a media address.
type mediaNeighbour struct {
	link    netlink.Link
	outputs int // that send to the address
}

// newOutputs returns outputs from a data address of the gateway.
func newOutputs(from netip.Addr, log *slog.Logger) *outputs {
	return &outputs{from: from, log: log, neighbours: map[netip.Addr]*mediaNeighbour{}}
}

// open opens a socket that sends from the gateway's data address and the given port. It binds the
// socket to the interface that has the data address, so that the kernel needs no route to the media
// address to.
func (o *outputs) open(to netip.Addr, port uint16) (output, error) {
	link, err := linkOf(o.from)
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
	conn, err := bind.ListenPacket(context.Background(), "udp4", netip.AddrPortFrom(o.from, port).String())
	if err != nil {
		return nil, fmt.Errorf("port %d for a channel: %w", port, err)
	}
	if err := o.addNeighbour(to, link); err != nil {
		_ = conn.Close()
		return nil, err
	}
	udp := conn.(*net.UDPConn)
	_ = udp.SetWriteBuffer(1 << 20) // up to the kernel's limit
	return udpOutput{udp, sync.OnceFunc(func() { o.removeNeighbour(to, link) })}, nil
}

// Close closes the socket.
func (o udpOutput) Close() error {
	o.release()
	return o.UDPConn.Close()
}

func (o udpOutput) send(b []byte, to netip.AddrPort) error {
	if _, err := o.WriteToUDPAddrPort(b, to); err != nil {
		return fmt.Errorf("send to %v: %w", to, err)
	}
	return nil
}

// linkOf returns the interface that has an address.
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

// addNeighbour counts an output to a media address. It adds the address's neighbour entry for the first
// output.
func (o *outputs) addNeighbour(to netip.Addr, by netlink.Link) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.neighbours[to]
	if n == nil {
		if err := netlink.NeighSet(neighbour(to, by)); err != nil {
			return fmt.Errorf("neighbour %v: %w (the gateway needs CAP_NET_ADMIN)", to, err)
		}
		n = &mediaNeighbour{link: by}
		o.neighbours[to] = n
	}
	n.outputs++
	return nil
}

// thing returns the neighbour entries as a thing that is kept as declared. They go, for instance,
// when the interface is set down.
func (o *outputs) thing() drift.Thing {
	return drift.Thing{
		Name: "neighbour entries of media addresses", After: []drift.Notification{drift.Neighbours, drift.Links},
		Restore: func(context.Context) (int, error) { return o.restore() },
	}
}

// restore sets the neighbour entries again that are missing or were changed, and returns their
// number.
func (o *outputs) restore() (differences int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := map[int][]netlink.Neigh{} // by index of the interface
	for to, n := range o.neighbours {
		index := n.link.Attrs().Index
		if known[index] == nil {
			list, err := netlink.NeighList(index, unix.AF_INET)
			if err != nil {
				return differences, fmt.Errorf("neighbours of %s: %w", n.link.Attrs().Name, err)
			}
			known[index] = append([]netlink.Neigh{}, list...)
		}
		if slices.ContainsFunc(known[index], func(k netlink.Neigh) bool {
			return k.IP.Equal(to.AsSlice()) && k.State&netlink.NUD_PERMANENT != 0 && bytes.Equal(k.HardwareAddr, mediaMAC)
		}) {
			continue
		}
		differences++
		if err := netlink.NeighSet(neighbour(to, n.link)); err != nil {
			return differences, fmt.Errorf("neighbour %v of %s: %w", to, n.link.Attrs().Name, err)
		}
	}
	return differences, nil
}

// removeNeighbour removes an output to a media address from the count. It removes the address's
// neighbour entry with the last output.
func (o *outputs) removeNeighbour(to netip.Addr, by netlink.Link) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.neighbours[to]
	if n.outputs--; n.outputs > 0 {
		return
	}
	delete(o.neighbours, to)
	if err := netlink.NeighDel(neighbour(to, by)); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
		o.log.Warn("a neighbour is left", "address", to, "interface", by.Attrs().Name, "error", err)
	}
}

func neighbour(to netip.Addr, by netlink.Link) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: by.Attrs().Index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT, IP: to.AsSlice(), HardwareAddr: mediaMAC,
	}
}
