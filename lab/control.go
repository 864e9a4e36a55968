package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/internal/namespace"
)

// controlMTU is the MTU of the control network.
const controlMTU = 1500

const controlBridge = "ctl"

// makeControlNetwork makes the bridge of the control namespace and gives it the controllers'
// addresses.
func (l *Lab) makeControlNetwork(context.Context) error {
	err := inNamespace(l.plan.namespace(controlNode), func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = controlBridge, controlMTU
		bridge := &netlink.Bridge{LinkAttrs: attrs}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		for _, c := range l.plan.Topology.Controllers {
			if err := addAddress(bridge, netip.PrefixFrom(l.plan.ControlIP[c.Name], controlPrefix.Bits())); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(bridge)
	})
	if err != nil {
		return fmt.Errorf("control network: %w", err)
	}
	return nil
}

// joinControlNetwork joins every switch and agent to the control network.
func (l *Lab) joinControlNetwork(context.Context) error {
	for _, w := range l.plan.Controls {
		err := w.joinBridge()
		if err == nil {
			err = l.configureWire(w)
		}
		if err != nil {
			return fmt.Errorf("control interface of %s: %w", w.B.Node, err)
		}
	}
	return nil
}

// joinBridge makes the link's end in the control namespace a port of its bridge.
func (w wire) joinBridge() error {
	return inNamespace(w.A.Namespace, func() error {
		bridge, err := netlink.LinkByName(controlBridge)
		if err != nil {
			return err
		}
		port, err := netlink.LinkByName(w.A.Name)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(port, bridge)
	})
}

// Control is the control namespace, in which controllers listen.
type Control struct{ node }

// Control returns the lab's control namespace.
func (l *Lab) Control() Control {
	return Control{node{lab: l, name: controlNode}}
}

// Listen listens inside the control namespace, for a controller that runs in the
// caller's process. Addresses must be literal.
func (c Control) Listen(network, address string) (net.Listener, error) {
	var listener net.Listener
	err := namespace.Do(c.path(), func() (err error) {
		listener, err = net.Listen(network, address)
		return err
	})
	return listener, err
}

// DialContext connects from inside the control namespace. Addresses must be
// literal: looking up a name would leave the namespace.
func (c Control) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dial from the control network: %w", err)
	}
	var conn net.Conn
	err := namespace.Do(c.path(), func() (err error) {
		var d net.Dialer
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// ControllerAddr returns the address at which the switches expect the first controller.
func (l *Lab) ControllerAddr() netip.AddrPort {
	c := l.plan.Topology.Controllers[0]
	return netip.AddrPortFrom(l.plan.ControlIP[c.Name], uint16(c.Port))
}

// ControllerAddrOf returns the address at which the switches expect the named controller.
func (l *Lab) ControllerAddrOf(name string) (netip.AddrPort, error) {
	for _, c := range l.plan.Topology.Controllers {
		if c.Name == name {
			return netip.AddrPortFrom(l.plan.ControlIP[name], uint16(c.Port)), nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("lab %s has no controller %q", l.Name(), name)
}

// ControlAddr returns a switch's or agent's address in the control network, or an invalid address
// for other hosts.
func (l *Lab) ControlAddr(node string) netip.Addr { return l.plan.ControlIP[node] }
