package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/namespace"
)

// tapQueue is the length of the transmit queue of TAPs, which holds frames that the delay line's
// thread has not read yet. It is long so that only the delay line's own queue ever drops frames.
const tapQueue = 16384

// shapedQueue is the length of the transmit queue of interfaces that tc shapes. All ports of a
// switch share one send socket: a longer queue at one port would stall the others.
const shapedQueue = 20

// makeWires makes the plain links as veth pairs, and with netem the shaped ones too. Otherwise
// shaped links are TAP devices of the delay line.
func (l *Lab) makeWires(context.Context) error {
	for _, w := range slices.Concat(l.wires(), l.plan.Controls) {
		if w.Link.shaped() && l.shaper == ShapingDelayLine {
			continue
		}
		if err := makeVeth(w.A, w.B); err != nil {
			return fmt.Errorf("link %s: %w", w.Link.Name, err)
		}
	}
	return nil
}

// makeVeth makes a veth pair whose ends are in their namespaces from the start, so that they never
// appear in the machine's own namespace.
func makeVeth(a, b iface) error {
	return inNamespace(a.Namespace, func() error {
		peer, err := unix.Open(namespace.Path(b.Namespace), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(peer)
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.HardwareAddr = a.Name, a.MTU, a.MAC
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: b.Name, PeerHardwareAddr: b.MAC,
			PeerNamespace: netlink.NsFd(peer), PeerMTU: uint32(b.MTU),
		})
	})
}

// configureInterfaces sets up every interface of every link.
func (l *Lab) configureInterfaces(context.Context) error {
	for _, w := range l.wires() {
		if err := l.configureWire(w); err != nil {
			return err
		}
	}
	return nil
}

// configureWire sets up both ends of a link.
func (l *Lab) configureWire(w wire) error {
	tap := w.Link.shaped() && l.shaper == ShapingDelayLine
	for _, d := range [][2]iface{{w.A, w.B}, {w.B, w.A}} {
		f, peer := d[0], d[1]
		up := !w.Link.Down || tap || f.Node != w.cableEnd().Node
		if err := configureInterface(f, tap, peer.Offload, up); err != nil {
			return fmt.Errorf("interface %s of %s: %w", f.Name, f.Node, err)
		}
	}
	if w.Link.shaped() && !tap {
		if err := shapeWithNetem(w); err != nil {
			return fmt.Errorf("link %s: %w", w.Link.Name, err)
		}
	}
	return nil
}

// cableEnd returns the end of a veth pair that is set down to unplug the cable, which takes the
// carrier from the other end as well. It prefers a switch's end, because a host would lose its
// routes.
func (w wire) cableEnd() iface {
	if w.A.Port == 0 && w.A.Node != controlNode {
		return w.B
	}
	return w.A
}

// configureInterface sets up one end of a link. offload reports whether the other end accepts
// incomplete checksums.
func configureInterface(f iface, tap, offload, up bool) error {
	return inNamespace(f.Namespace, func() error {
		link, err := netlink.LinkByName(f.Name)
		if err != nil {
			return err
		}
		switch {
		case tap:
			err = configureTAP(link, f)
		case !offload:
			// The kernel leaves checksums to the device, and behind a userspace datapath nobody
			// would fill them in.
			err = setTxOffload(f.Name, false)
		}
		if err != nil {
			return err
		}
		f.disableIP()
		for _, a := range f.Addresses {
			if err := addAddress(link, a); err != nil {
				return err
			}
		}
		if !up {
			return nil
		}
		return netlink.LinkSetUp(link)
	})
}

// disableIP keeps the switch's own IP stack from using a port.
func (f iface) disableIP() {
	if f.Port != 0 {
		_ = writeSysctl("net.ipv6.conf."+f.Name+".disable_ipv6", "1")
	}
}

func configureTAP(link netlink.Link, f iface) error {
	if err := netlink.LinkSetHardwareAddr(link, f.MAC); err != nil {
		return fmt.Errorf("MAC address: %w", err)
	}
	if err := netlink.LinkSetMTU(link, f.MTU); err != nil {
		return fmt.Errorf("MTU %d: %w", f.MTU, err)
	}
	return netlink.LinkSetTxQLen(link, tapQueue)
}

// addAddress adds an address that can be used at once. It disables duplicate address detection,
// which would keep an IPv6 address tentative for a second.
func addAddress(link netlink.Link, a netip.Prefix) error {
	addr := &netlink.Addr{IPNet: ipNet(a)}
	if a.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("address %s: %w", a, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func setLoopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// This is an ethtool command of the kernel's SIOCETHTOOL interface.
const (
	ethtoolSetTxCsum = 0x17
)

// setTxOffload does what `ethtool -K NAME tx on|off` does.
func setTxOffload(name string, on bool) error {
	return ethtoolSet(name, ethtoolSetTxCsum, on)
}

func ethtoolSet(name string, command uint32, on bool) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := struct{ command, data uint32 }{command: command}
	if on {
		value.data = 1
	}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return fmt.Errorf("ethtool %s: %w", name, errno)
	}
	return nil
}
