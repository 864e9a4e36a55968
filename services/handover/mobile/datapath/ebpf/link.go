package ebpf

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
)

// vniAlias marks a VNI as created by this package.
const vniAlias = "virtual interface of sluice mobile"

// farEnd returns the name of the pair's other end, which carries nothing.
func farEnd(vni string) string { return vni[:min(len(vni), 11)] + "-end" }

// makeVNI creates the virtual interface, or takes over the one that a killed daemon has left, with
// its address.
func makeVNI(c datapath.Config) (netlink.Link, error) {
	link, err := netlink.LinkByName(c.VNI)
	switch {
	case err == nil && link.Attrs().Alias != vniAlias:
		return nil, fmt.Errorf("virtual interface %s: there is already an interface of that name", c.VNI)
	case err != nil && !gone(err):
		return nil, fmt.Errorf("virtual interface %s: %w", c.VNI, err)
	case err != nil:
		if link, err = addVNI(c); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(
		netlink.LinkSetHardwareAddr(link, net.HardwareAddr(c.VNIMAC[:])),
		netlink.LinkSetMTU(link, c.FitMTU(nil)),
		netlink.LinkSetUp(link),
	); err != nil {
		return nil, fmt.Errorf("virtual interface %s: %w", c.VNI, err)
	}
	return link, nil
}

// addVNI creates the virtual interface.
func addVNI(c datapath.Config) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = c.VNI, net.HardwareAddr(c.VNIMAC[:])
	pair := netlink.NewVeth(attrs)
	pair.PeerName = farEnd(c.VNI)
	if err := netlink.LinkAdd(pair); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			return nil, unsupported("veth interfaces (CONFIG_VETH)", err)
		}
		return nil, fmt.Errorf("virtual interface %s: making it: %w", c.VNI, err)
	}
	if err := setUpPair(c); err != nil {
		return nil, errors.Join(fmt.Errorf("virtual interface %s: %w", c.VNI, err), netlink.LinkDel(pair))
	}
	return netlink.LinkByName(c.VNI)
}

// setUpPair marks the pair as ours and prevents the far end from sending.
func setUpPair(c datapath.Config) error {
	link, err := netlink.LinkByName(c.VNI)
	if err != nil {
		return err
	}
	end, err := netlink.LinkByName(farEnd(c.VNI))
	if err != nil {
		return err
	}
	_ = netlink.LinkSetIP6AddrGenMode(end, nl.IN6_ADDR_GEN_MODE_NONE) // fails only without IPv6, where it is not needed
	return errors.Join(netlink.LinkSetAlias(link, vniAlias), netlink.LinkSetARPOff(end), netlink.LinkSetUp(end))
}

// removeVNI removes a VNI that this package has created, and no other interface.
func removeVNI(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil && link.Attrs().Alias == vniAlias {
		err = netlink.LinkDel(link)
	}
	if err != nil && !gone(err) {
		return fmt.Errorf("virtual interface %s: removing it: %w", name, err)
	}
	return nil
}

// acceptMulticast makes an interface accept frames to all groups until the returned socket is
// closed, because the interface cannot know which ones the VNI's stack has joined.
func acceptMulticast(link *netlink.LinkAttrs) (*packetsocket.Socket, error) {
	ifi := &net.Interface{Index: link.Index, Name: link.Name}
	return packetsocket.Open(ifi, packetsocket.Options{SendOnly: true, AllMulticast: true})
}
