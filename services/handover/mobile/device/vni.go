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

	"github.com/sluice-net/sluice/internal/wholefile"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/lease"
)

// protocol marks our routes: the number of DHCP.
const protocol = unix.RTPROT_DHCP

// Configure gives the virtual interface the lease's address, for as long as the lease lasts, and the
// lease's routes with the given metric. It removes the addresses and routes of an earlier lease.
func Configure(vni string, l lease.Lease, metric int) error {
	link, err := netlink.LinkByName(vni)
	if err != nil {
		return fmt.Errorf("virtual interface %s: %w", vni, err)
	}
	// Other addresses are removed before the new one is added: removing an address also removes those
	// that were added after it in its subnet.
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

// NoIPv6 disables IPv6 on the virtual interface: the network moves IPv4 addresses only, and
// applications that used an IPv6 address would lose their connections with the next move. The
// setting ends with the interface.
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

// seconds returns a lifetime for the kernel, in which the highest number stands for unlimited.
func seconds(d time.Duration) int {
	return int(min(max(d/time.Second, 1), math.MaxUint32))
}

// Unconfigure removes all IPv4 addresses, and the routes with them, from the virtual interface.
func Unconfigure(vni string) error {
	link, err := netlink.LinkByName(vni)
	if err != nil {
		return fmt.Errorf("virtual interface %s: %w", vni, err)
	}
	return removeAddresses(link, func(netip.Prefix) bool { return true })
}

// removeAddresses removes the addresses for which which returns true.
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
	wanted := map[netip.Prefix]bool{}
	for _, r := range leaseRoutes(link, l, metric) {
		to := destination(r)
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("route to %v by %s: %w", to, link.Attrs().Name, err)
		}
		wanted[to] = true
	}
	routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("routes of %s: %w", link.Attrs().Name, err)
	}
	for _, r := range routes {
		to := destination(&r)
		if r.Protocol != protocol || wanted[to] && r.Priority == metric {
			continue
		}
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("route to %v by %s: %w", to, link.Attrs().Name, err)
		}
	}
	return nil
}

// leaseRoutes returns the routes of a lease by the virtual interface.
func leaseRoutes(link netlink.Link, l lease.Lease, metric int) (all []*netlink.Route) {
	mtu := l.MTU
	if mtu >= link.Attrs().MTU {
		mtu = 0 // leave the interface's own MTU in force, which is not larger: larger packets would be lost
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
			route.Flags = int(netlink.FLAG_ONLINK) // a router may be outside the prefix
		}
		all = append(all, route)
	}
	return all
}

// routesFor returns the routes of a lease, including the default route.
func routesFor(l lease.Lease) []lease.Route {
	routes := l.Routes
	if l.Router.IsValid() {
		routes = append(routes[:len(routes):len(routes)], lease.Route{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: l.Router})
	}
	return routes
}

// SetNeighbour sets the router's MAC address in the kernel, if the kernel has a different one: the
// network to which the device has moved may have another router.
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

// SetResolver writes the lease's name servers to a file like /etc/resolv.conf. If the file is a
// symbolic link it belongs to another program; then SetResolver leaves it alone and returns false.
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

// resolver returns the content of the file.
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

// file returns the earlier change of a file, or nil.
func (j *Journal) file(path string) *File {
	for _, c := range j.changes {
		if c.File != nil && filepath.Clean(c.File.Path) == filepath.Clean(path) {
			return c.File
		}
	}
	return nil
}

// replaceFile records a change of a file in place of an earlier one.
func (j *Journal) replaceFile(f File) error {
	if ours := j.file(f.Path); ours != nil {
		*ours = f
		return j.write()
	}
	return j.Record(Change{File: &f})
}
