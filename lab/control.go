package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/lab/internal/namespace"
)

// controlMTU is the MTU of the control network.
const controlMTU = 1500

const controlBridge = "ctl"

// makeControlNetwork makes the bridge of the control namespace with the
// controllers' addresses, and joins every switch and agent to it.
func (l *Lab) makeControlNetwork(context.Context) error {
	ns := l.plan.namespace(controlNode)
	err := inNamespace(ns, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = controlBridge, controlMTU
		bridge := &netlink.Bridge{LinkAttrs: attrs}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		for _, c := range l.plan.Topology.Controllers {
			if err := addAddress(bridge, l.controlAddress(c.Name)); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(bridge)
	})
	if err != nil {
		return fmt.Errorf("control network: %w", err)
	}
	index := 0
	join := func(node string) error {
		index++
		if err := l.joinControl(node, index); err != nil {
			return fmt.Errorf("control interface of %s: %w", node, err)
		}
		return nil
	}
	for _, s := range l.plan.Topology.Switches {
		if err := join(s.Name); err != nil {
			return err
		}
	}
	for _, h := range l.plan.Topology.Hosts {
		if !h.Agent {
			continue
		}
		if err := join(h.Name); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) controlAddress(node string) netip.Prefix {
	return netip.PrefixFrom(l.plan.ControlIP[node], controlPrefix.Bits())
}

// joinControl gives a node its interface in the control network.
func (l *Lab) joinControl(node string, index int) error {
	inside := iface{
		Node: node, Namespace: l.plan.namespace(node), Name: controlInterface,
		MAC: mac(0x22, index, 0), MTU: controlMTU,
	}
	outside := iface{
		Node: controlNode, Namespace: l.plan.namespace(controlNode), Name: "port" + strconv.Itoa(index),
		MAC: mac(0x32, index, 0), MTU: controlMTU,
	}
	if err := makeVeth(outside, inside); err != nil {
		return err
	}
	err := inNamespace(outside.Namespace, func() error {
		bridge, err := netlink.LinkByName(controlBridge)
		if err != nil {
			return err
		}
		port, err := netlink.LinkByName(outside.Name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(port, bridge); err != nil {
			return err
		}
		return netlink.LinkSetUp(port)
	})
	if err != nil {
		return err
	}
	return inNamespace(inside.Namespace, func() error {
		link, err := netlink.LinkByName(inside.Name)
		if err != nil {
			return err
		}
		if err := addAddress(link, l.controlAddress(node)); err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

// Control is the control namespace: the place of the controllers.
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

// ControllerAddr is where the switches look for the first controller.
func (l *Lab) ControllerAddr() netip.AddrPort {
	c := l.plan.Topology.Controllers[0]
	return netip.AddrPortFrom(l.plan.ControlIP[c.Name], uint16(c.Port))
}

// ControllerAddrOf is where the switches look for a controller by its name.
func (l *Lab) ControllerAddrOf(name string) (netip.AddrPort, error) {
	for _, c := range l.plan.Topology.Controllers {
		if c.Name == name {
			return netip.AddrPortFrom(l.plan.ControlIP[name], uint16(c.Port)), nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("lab %s has no controller %q", l.Name(), name)
}

// ControlAddr is a switch's or agent's address in the control network; it is
// invalid for other hosts.
func (l *Lab) ControlAddr(node string) netip.Addr { return l.plan.ControlIP[node] }
