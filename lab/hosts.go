package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/namespace"
)

// configureHosts gives hosts their sysctls and routes.
func (l *Lab) configureHosts(context.Context) error {
	for _, h := range l.plan.Topology.Hosts {
		err := namespace.Do(namespace.Path(l.plan.namespace(h.Name)), func() error { return configureHost(h) })
		if err != nil {
			return fmt.Errorf("host %s: %w", h.Name, err)
		}
	}
	return nil
}

func configureHost(h Host) error {
	// Addresses stay while links go down and come up again.
	if err := writeSysctl("net.ipv6.conf.all.keep_addr_on_down", "1"); err != nil {
		return err
	}
	if h.Router {
		for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
			if err := writeSysctl(name, "1"); err != nil {
				return err
			}
		}
	}
	for name, value := range h.Sysctls {
		if err := writeSysctl(name, value); err != nil {
			return err
		}
	}
	return addRoutes(h)
}

// addRoutes adds the host's routes and sets the congestion control of all its routes.
func addRoutes(h Host) error {
	for _, r := range h.Routes {
		route := &netlink.Route{Dst: ipNet(r.To), Gw: r.Via.AsSlice()}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("route to %s by %s: %w", r.To, r.Via, err)
		}
	}
	if h.Congestion == "" {
		return nil
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		if err := setCongestion(family, h.Congestion); err != nil {
			return fmt.Errorf("congestion control %s: %w", h.Congestion, err)
		}
	}
	return nil
}

func setCongestion(family int, algorithm string) error {
	routes, err := netlink.RouteList(nil, family)
	if err != nil {
		return err
	}
	for _, r := range routes {
		if r.Type != unix.RTN_UNICAST || r.Dst != nil && r.Dst.IP.IsLinkLocalUnicast() {
			continue
		}
		r.Congctl = algorithm
		r.Flags &^= unix.RTNH_F_DEAD | unix.RTNH_F_LINKDOWN // Only the kernel sets these.
		if err := netlink.RouteReplace(&r); err != nil {
			return fmt.Errorf("route %s: %w", r.Dst, err)
		}
	}
	return nil
}

// writeSysctl sets a sysctl of the calling thread's network namespace.
func writeSysctl(name, value string) error {
	file := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
	if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
		return fmt.Errorf("sysctl %s = %s: %w", name, value, err)
	}
	return nil
}

// restoreRoutes adds the routes again that the kernel removed together with an interface.
func (h *LiveHost) restoreRoutes() error {
	return h.Do(func() error { return addRoutes(h.spec) })
}
