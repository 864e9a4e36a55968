package device

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/handover/mobile/lease"
	"github.com/sluice-net/sluice/internal/wholefile"
	"github.com/sluice-net/sluice/openflow"
)

// protocol marks the routes that are ours: the number of DHCP.
const protocol = unix.RTPROT_DHCP

// Configure gives the virtual interface the lease's address, for as long as the
// lease lasts, and routes with that metric. What it had from another lease goes.
func Configure(vni string, l lease.Lease, metric int) error {
	link, err := netlink.LinkByName(vni)
	if err != nil {
		return fmt.Errorf("virtual interface %s: %w", vni, err)
	}
	// First: with an address go those that came after it in its subnet.
	if err := removeAddresses(link, func(p netip.Prefix) bool { return p != l.Address }); err != nil {
		return err
	}
	rest := seconds(time.Until(l.Expires))
	address := &netlink.Addr{IPNet: ipNet(l.Address), ValidLft: rest, PreferedLft: rest}
	if err := netlink.AddrReplace(link, address); err != nil {
		return fmt.Errorf("address %v on %s: %w", l.Address, vni, err)
	}
	return configureRoutes(link, l, metric)
}

// NoIPv6 switches IPv6 off on the virtual interface: the network moves IPv4 addresses
// only, and applications that found another would lose their connections with the
// next move. The setting goes with the interface.
func NoIPv6(vni string) error {
	path := sysctl("net", "ipv6", "conf", vni, "disable_ipv6")
	_, needed, err := readSysctl(path, "1")
	if err == nil && needed {
		err = os.WriteFile(filepath.Join("/proc/sys", path), []byte("1"), 0o644)
	}
	if err != nil {
		return fmt.Errorf("virtual interface %s: switching IPv6 off: %w", vni, err)
	}
	return nil
}

// seconds are those of a lifetime in the kernel, which has the highest number
// stand for no end.
func seconds(d time.Duration) int {
	return int(min(max(d/time.Second, 1), math.MaxUint32))
}

// Unconfigure takes all IPv4 addresses, and the routes with them, off the
// virtual interface.
func Unconfigure(vni string) error {
	link, err := netlink.LinkByName(vni)
	if err != nil {
		return fmt.Errorf("virtual interface %s: %w", vni, err)
	}
	return removeAddresses(link, func(netip.Prefix) bool { return true })
}

func removeAddresses(link netlink.Link, which func(netip.Prefix) bool) error {
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("addresses of %s: %w", link.Attrs().Name, err)
	}
	for _, a := range addresses {
		if p, ok := prefix(a.IPNet); !ok || !which(p) {
			continue
		}
		if err := netlink.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("address %v on %s: %w", a.IPNet, link.Attrs().Name, err)
		}
	}
	return nil
}

// configureRoutes sets the routes of a lease and removes those of an earlier one.
func configureRoutes(link netlink.Link, l lease.Lease, metric int) error {
	wanted, mtu := map[netip.Prefix]bool{}, l.MTU
	if mtu >= link.Attrs().MTU {
		mtu = 0 // the interface's own, which is less: packets larger than it would vanish
	}
	for _, r := range routesFor(l) {
		route := &netlink.Route{
			LinkIndex: link.Attrs().Index, Dst: ipNet(r.To), Src: l.Address.Addr().AsSlice(),
			Priority: metric, Protocol: protocol, MTU: mtu,
		}
		switch {
		case !r.Via.IsValid():
			route.Scope = netlink.SCOPE_LINK
		default:
			route.Gw = r.Via.AsSlice()
			route.Flags = int(netlink.FLAG_ONLINK) // a router may be beyond the prefix
		}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("route to %v by %s: %w", r.To, link.Attrs().Name, err)
		}
		wanted[r.To] = true
	}
	routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("routes of %s: %w", link.Attrs().Name, err)
	}
	for _, r := range routes {
		to, ok := prefix(r.Dst)
		if !ok {
			to = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		if r.Protocol != protocol || wanted[to] && r.Priority == metric {
			continue
		}
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("route to %v by %s: %w", to, link.Attrs().Name, err)
		}
	}
	return nil
}

func routesFor(l lease.Lease) []lease.Route {
	routes := l.Routes
	if l.Router.IsValid() {
		routes = append(routes[:len(routes):len(routes)], lease.Route{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: l.Router})
	}
	return routes
}

// SetNeighbour tells the kernel where the router is now, if it believes
// something else: the network that the device has moved to may have another one.
func SetNeighbour(vni string, router netip.Addr, mac openflow.MAC) error {
	link, err := netlink.LinkByName(vni)
	if err != nil {
		return fmt.Errorf("virtual interface %s: %w", vni, err)
	}
	known, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("neighbours of %s: %w", vni, err)
	}
	for _, n := range known {
		if a, ok := netip.AddrFromSlice(n.IP.To4()); !ok || a != router {
			continue
		}
		if n.State&unix.NUD_PERMANENT != 0 || len(n.HardwareAddr) == 6 && openflow.MAC(n.HardwareAddr) == mac {
			return nil
		}
		n.HardwareAddr, n.State = mac[:], unix.NUD_REACHABLE
		return netlink.NeighSet(&n)
	}
	return nil
}

// SetResolver writes the lease's name servers to a file like /etc/resolv.conf.
// A file that is a link belongs to another program and is left alone: false.
func (j *Journal) SetResolver(path string, l lease.Lease) (bool, error) {
	info, err := os.Lstat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return false, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return false, fmt.Errorf("name servers: %w", err)
	}
	content := resolver(l)
	change := File{Path: path, New: content}
	if err == nil {
		if change.Old, err = os.ReadFile(path); err != nil {
			return false, fmt.Errorf("name servers: %w", err)
		}
		change.Existed, change.Mode = true, info.Mode().Perm()
	}
	if ours := j.file(path); ours != nil {
		change.Old, change.Existed, change.Mode = ours.Old, ours.Existed, ours.Mode
	}
	mode := change.Mode
	if mode == 0 {
		mode = 0o644
	}
	if err := j.replaceFile(change); err != nil {
		return false, err
	}
	if err := wholefile.Replace(path, content, mode); err != nil {
		return false, fmt.Errorf("name servers: %w", err)
	}
	return true, nil
}

func resolver(l lease.Lease) []byte {
	b := []byte("# written by sluice mobile for " + l.Address.Addr().String() + "\n")
	if l.Domain != "" {
		b = append(b, "search "+l.Domain+"\n"...)
	}
	for _, s := range l.DNS {
		b = append(b, "nameserver "+s.String()+"\n"...)
	}
	return b
}

// file is the change that was made to a file before.
func (j *Journal) file(path string) *File {
	for _, c := range j.changes {
		if c.File != nil && filepath.Clean(c.File.Path) == filepath.Clean(path) {
			return c.File
		}
	}
	return nil
}

// replaceFile records a change to a file in place of the one before it.
func (j *Journal) replaceFile(f File) error {
	if ours := j.file(f.Path); ours != nil {
		*ours = f
		return j.write()
	}
	return j.Record(Change{File: &f})
}
