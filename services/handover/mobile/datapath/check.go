package datapath

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// maxName is the longest interface name that Linux allows.
const maxName = 15

// Check returns an error for a configuration that no datapath could implement.
func (c Config) Check() error {
	if err := checkName(c.VNI); err != nil {
		return fmt.Errorf("virtual interface: %w", err)
	}
	if c.VNIMAC.IsZero() || c.VNIMAC.IsMulticast() {
		return fmt.Errorf("virtual interface %s: %v is no address of a station", c.VNI, c.VNIMAC)
	}
	if c.MTU != 0 && (c.MTU < 576 || c.MTU > 65535) {
		return fmt.Errorf("virtual interface %s: MTU %d: must be 576 to 65535, or 0 for the interfaces' smallest", c.VNI, c.MTU)
	}
	if len(c.Interfaces) > MaxInterfaces {
		return fmt.Errorf("%d interfaces, at most %d can be attached", len(c.Interfaces), MaxInterfaces)
	}
	for i, in := range c.Interfaces {
		if err := in.check(c); err != nil {
			return err
		}
		if slices.ContainsFunc(c.Interfaces[:i], func(o Interface) bool { return o.Name == in.Name }) {
			return fmt.Errorf("interface %s is listed twice", in.Name)
		}
	}
	return nil
}

// CheckInterface returns an error for an interface that cannot be attached to a datapath made from
// c.
func (c Config) CheckInterface(i Interface) error { return i.check(c) }

// check returns an error if the interface is not valid.
func (i Interface) check(c Config) error {
	if err := checkName(i.Name); err != nil {
		return fmt.Errorf("interface: %w", err)
	}
	switch {
	case i.Name == c.VNI:
		return fmt.Errorf("interface %s is the virtual interface itself", i.Name)
	case i.MAC.IsZero() || i.MAC.IsMulticast():
		return fmt.Errorf("interface %s: %v is no address of a station", i.Name, i.MAC)
	case i.MAC == c.VNIMAC:
		return fmt.Errorf("interface %s has the virtual interface's address %v", i.Name, i.MAC)
	}
	return nil
}

// usualMTU is the MTU of a VNI without interfaces.
const usualMTU = 1500

// FitMTU returns the MTU for a VNI whose frames leave by the named interfaces, in the network
// namespace of the calling thread: the smallest of their MTUs and of c.MTU. Nil names stand for
// c.Interfaces.
func (c Config) FitMTU(names []string) int {
	if names == nil {
		for _, i := range c.Interfaces {
			names = append(names, i.Name)
		}
	}
	smallest := c.MTU
	for _, name := range names {
		if i, err := net.InterfaceByName(name); err == nil && (smallest == 0 || i.MTU < smallest) {
			smallest = i.MTU
		}
	}
	if smallest == 0 {
		return usualMTU
	}
	return smallest
}

// checkName returns an error for a name that Linux does not allow.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("no name")
	case len(name) > maxName:
		return fmt.Errorf("%q is longer than the %d bytes an interface's name may have", name, maxName)
	case name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n"):
		return fmt.Errorf("%q is no name for an interface", name)
	}
	return nil
}

// Choice holds the interfaces that Use has chosen.
type Choice struct {
	Send    string
	Receive []string
}

// NewChoice checks the arguments of a datapath's Use; attached reports whether an interface is
// attached. Names that are given twice count once.
func NewChoice(send string, receive []string, attached func(string) bool) (Choice, error) {
	c := Choice{Send: send}
	if send != "" && !attached(send) {
		return c, fmt.Errorf("send by %s: %w", send, ErrUnknownInterface)
	}
	for _, name := range receive {
		if !attached(name) {
			return c, fmt.Errorf("receive from %s: %w", name, ErrUnknownInterface)
		}
		if !slices.Contains(c.Receive, name) {
			c.Receive = append(c.Receive, name)
		}
	}
	return c, nil
}

// Without returns the choice without an interface that was detached.
func (c Choice) Without(name string) Choice {
	if c.Send == name {
		c.Send = ""
	}
	c.Receive = slices.DeleteFunc(slices.Clone(c.Receive), func(n string) bool { return n == name })
	return c
}
