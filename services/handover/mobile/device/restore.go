package device

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/services/handover/mobile/lease"
)

// RestoreLease compares the virtual interface with what Configure has set up for a lease, and calls
// Configure if anything differs. It returns the number of addresses and routes that were missing or
// not of the lease. An expired lease is left alone.
func RestoreLease(vni string, l lease.Lease, metric int) (differences int, err error) {
	link, err := netlink.LinkByName(vni)
	if err != nil {
		return 0, fmt.Errorf("virtual interface %s: %w", vni, err)
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return 0, fmt.Errorf("addresses of %s: %w", vni, err)
	}
	routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
	if err != nil {
		return 0, fmt.Errorf("routes of %s: %w", vni, err)
	}
	if !l.Valid(time.Now()) {
		return 0, nil // the kernel may have removed the address already
	}
	missing := 1
	for _, a := range addresses {
		if p, ok := prefix(a.IPNet); ok && p == l.Address {
			missing = 0
		} else {
			differences++
		}
	}
	differences += missing
	connected := connectedRoute(link, l)
	lost := missing == 0 && l.Address.Bits() < 32 && !slices.ContainsFunc(routes, func(r netlink.Route) bool { return sameRoute(&r, connected) })
	if lost {
		differences++
	}
	for _, want := range leaseRoutes(link, l, metric) {
		if !slices.ContainsFunc(routes, func(r netlink.Route) bool { return sameRoute(&r, want) }) {
			differences++
		}
	}
	if differences == 0 {
		return 0, nil
	}
	if lost { // the kernel adds it only together with the address
		if err := netlink.RouteReplace(connected); err != nil {
			return differences, fmt.Errorf("route to %v by %s: %w", destination(connected), vni, err)
		}
	}
	return differences, Configure(vni, l, metric)
}

// connectedRoute returns the route to the lease's subnet that the kernel adds with the address.
func connectedRoute(link netlink.Link, l lease.Lease) *netlink.Route {
	return &netlink.Route{
		LinkIndex: link.Attrs().Index, Dst: ipNet(l.Address.Masked()), Src: l.Address.Addr().AsSlice(),
		Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_KERNEL,
	}
}

// NoIPv6Thing returns the setting of NoIPv6 as a thing that is kept as declared.
func NoIPv6Thing(vni string) drift.Thing {
	return drift.Sysctl(filepath.Join("/proc/sys", sysctl("net", "ipv6", "conf", vni, "disable_ipv6")), "1")
}

// sameRoute reports whether two routes of one interface agree in what leaseRoutes sets.
func sameRoute(a, b *netlink.Route) bool {
	return destination(a) == destination(b) && a.Gw.Equal(b.Gw) && a.Src.Equal(b.Src) && a.Priority == b.Priority && a.Protocol == b.Protocol && a.MTU == b.MTU
}

// destination returns the destination of an IPv4 route, which the netlink package leaves out for the
// default route.
func destination(r *netlink.Route) netip.Prefix {
	if to, ok := prefix(r.Dst); ok {
		return to
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// RestoreAdopted compares a link that was adopted with what Adopt has made of it. It removes
// addresses and routes that another program has added since, disables IPv6 again, and returns the
// number of differences. It does not set the link up: whoever has set it down means to.
//
// The journal does not hold what RestoreAdopted removes, because the program that has added it can
// do so again when the daemon has ended.
func RestoreAdopted(name string) (differences int, err error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	quiet := sysctl("net", "ipv6", "conf", name, "disable_ipv6")
	_, needed, err := readSysctl(quiet, "1")
	if err == nil && needed {
		differences++
		err = os.WriteFile(filepath.Join("/proc/sys", quiet), []byte("1"), 0o644)
	}
	if err != nil {
		return differences, fmt.Errorf("interface %s: %w", name, err)
	}
	removed, err := removeAll(link)
	if err != nil {
		err = fmt.Errorf("interface %s: %w", name, err)
	}
	return differences + removed, err
}
