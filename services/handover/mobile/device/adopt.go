package device

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Adopt dedicates a link to the virtual interface: it removes the link's addresses and routes,
// disables IPv6 on it, and sets it up.
func (j *Journal) Adopt(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	before, err := inventory(link)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	quiet := sysctl("net", "ipv6", "conf", name, "disable_ipv6")
	change, needed, err := readSysctl(quiet, "1")
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if needed {
		before = append(before, change)
	}
	if link.Attrs().RawFlags&unix.IFF_UP == 0 {
		before = append(before, Change{LinkUp: &LinkUp{Link: name}})
	}
	if err := j.Record(before...); err != nil {
		return err
	}
	if err := strip(link, needed, quiet); err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	return nil
}

// inventory returns the changes that undo the removal of a link's addresses and routes.
func inventory(link netlink.Link) ([]Change, error) {
	name := link.Attrs().Name
	var routed, direct []Change
	for _, family := range families {
		routes, err := routesOf(link, family)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			switch c, ok := routeChange(name, family, r); {
			case !ok:
			case c.Route.Via.IsValid():
				routed = append(routed, c)
			default:
				direct = append(direct, c)
			}
		}
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	// Changes are undone in reverse order: first the addresses in their order, then the direct routes,
	// and last the routes by a router, which need the direct ones.
	out := slices.Concat(routed, direct)
	for _, a := range slices.Backward(addresses) {
		if c, ok := addressChange(name, a); ok {
			out = append(out, c)
		}
	}
	return out, nil
}

// families are the address families of routes.
var families = []int{netlink.FAMILY_V4, netlink.FAMILY_V6}

// routesOf returns the routes of a link in all tables, without those that the kernel adds and
// removes with its addresses.
func routesOf(link netlink.Link, family int) ([]netlink.Route, error) {
	filter := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_UNSPEC}
	routes, err := netlink.RouteListFiltered(family, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	return slices.DeleteFunc(routes, func(r netlink.Route) bool { return r.Protocol == unix.RTPROT_KERNEL }), nil
}

// addressChange returns the change for an address, and false for addresses that the kernel creates
// by itself.
func addressChange(link string, a netlink.Addr) (Change, bool) {
	p, ok := prefix(a.IPNet)
	if !ok || p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
		return Change{}, false
	}
	out := &Address{Link: link, Prefix: p, Label: a.Label, Scope: a.Scope, Flags: a.Flags &^ (unix.IFA_F_PERMANENT | unix.IFA_F_TENTATIVE | unix.IFA_F_SECONDARY)}
	if peer, ok := prefix(a.Peer); ok && peer != p {
		out.Peer = peer
	}
	if b, ok := netip.AddrFromSlice(a.Broadcast.To4()); ok {
		out.Broadcast = b
	}
	if a.Flags&unix.IFA_F_PERMANENT == 0 && a.ValidLft > 0 {
		out.Valid = time.Duration(a.ValidLft) * time.Second
		out.Preferred = time.Duration(a.PreferedLft) * time.Second
	}
	return Change{Address: out}, true
}

// routeChange returns the change for a route, and false for routes that routers announce.
func routeChange(link string, family int, r netlink.Route) (Change, bool) {
	if r.Type != unix.RTN_UNICAST || r.Protocol == unix.RTPROT_RA {
		return Change{}, false
	}
	to, ok := prefix(r.Dst)
	switch {
	case ok:
	case r.Dst == nil && family == netlink.FAMILY_V4:
		to = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	case r.Dst == nil:
		to = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	default:
		return Change{}, false
	}
	out := &Route{
		Link: link, To: to, Table: r.Table, Metric: r.Priority, Scope: int(r.Scope),
		Protocol: int(r.Protocol), Type: r.Type, TOS: r.Tos, MTU: r.MTU,
		OnLink: r.Flags&int(netlink.FLAG_ONLINK) != 0,
	}
	if via, ok := netip.AddrFromSlice(r.Gw); ok {
		out.Via = via.Unmap()
	}
	if source, ok := netip.AddrFromSlice(r.Src); ok {
		out.Source = source.Unmap()
	}
	return Change{Route: out}, true
}

// strip removes the addresses and routes that inventory has returned, and sets the link up.
func strip(link netlink.Link, quieten bool, quiet string) error {
	if quieten {
		if err := os.WriteFile(filepath.Join("/proc/sys", quiet), []byte("1"), 0o644); err != nil {
			return err
		}
	}
	if _, err := removeAll(link); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set it up: %w", err)
	}
	return nil
}

// removeAll removes a link's addresses and routes, and returns their number.
func removeAll(link netlink.Link) (removed int, err error) {
	// Routes are removed first, because some of them do not go away with an address.
	for _, family := range families {
		routes, err := routesOf(link, family)
		if err != nil {
			return removed, err
		}
		for _, r := range routes {
			if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				return removed, fmt.Errorf("route to %v: %w", r.Dst, err)
			}
			removed++
		}
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return removed, fmt.Errorf("addresses: %w", err)
	}
	for _, a := range addresses {
		// A secondary address is removed together with its primary one.
		if err := netlink.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return removed, fmt.Errorf("address %v: %w", a.IPNet, err)
		}
		removed++
	}
	return removed, nil
}

// readSysctl returns the change for a kernel setting, and reports whether the setting has another
// value than want. A setting that the kernel does not have needs no change.
func readSysctl(path, want string) (Change, bool, error) {
	b, err := os.ReadFile(filepath.Join("/proc/sys", path))
	if errors.Is(err, os.ErrNotExist) {
		return Change{}, false, nil
	}
	if err != nil {
		return Change{}, false, err
	}
	old := strings.TrimSpace(string(b))
	return Change{Sysctl: &Sysctl{Path: path, Old: old}}, old != want, nil
}

// Release undoes the changes to one link.
func (j *Journal) Release(name string) error {
	return j.Undo(func(c Change) bool { return c.Link() == name })
}

// Forget drops the changes to a link that is gone.
func (j *Journal) Forget(name string) error {
	j.changes = slices.DeleteFunc(j.changes, func(c Change) bool { return c.Link() == name })
	return j.write()
}
