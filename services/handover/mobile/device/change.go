package device

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/wholefile"
)

// Change is one change, with the data to undo it. Exactly one of the pointers is set.
type Change struct {
	At      time.Time `json:"at"`
	Sysctl  *Sysctl   `json:"sysctl,omitempty"`
	LinkUp  *LinkUp   `json:"link_up,omitempty"`
	Address *Address  `json:"address,omitempty"`
	Route   *Route    `json:"route,omitempty"`
	File    *File     `json:"file,omitempty"`
}

// Sysctl is a kernel setting that was changed.
type Sysctl struct {
	Path string `json:"path"` // below /proc/sys
	Old  string `json:"old"`
}

// LinkUp is a link that was down and has been brought up.
type LinkUp struct {
	Link string `json:"link"`
}

// Address is an address that was removed from a link.
type Address struct {
	Link      string       `json:"link"`
	Prefix    netip.Prefix `json:"prefix"`
	Peer      netip.Prefix `json:"peer,omitzero"`
	Broadcast netip.Addr   `json:"broadcast,omitzero"`
	Label     string       `json:"label,omitempty"`
	Scope     int          `json:"scope,omitempty"`
	Flags     int          `json:"flags,omitempty"`
	// Valid and Preferred are the remaining lifetimes; zero means unlimited.
	Valid     time.Duration `json:"valid,omitempty"`
	Preferred time.Duration `json:"preferred,omitempty"`
}

// Route is a route that was removed from a link.
type Route struct {
	Link     string       `json:"link"`
	To       netip.Prefix `json:"to"`
	Via      netip.Addr   `json:"via,omitzero"`
	Source   netip.Addr   `json:"source,omitzero"`
	Table    int          `json:"table,omitempty"`
	Metric   int          `json:"metric,omitempty"`
	Scope    int          `json:"scope,omitempty"`
	Protocol int          `json:"protocol,omitempty"`
	Type     int          `json:"type,omitempty"`
	TOS      int          `json:"tos,omitempty"`
	MTU      int          `json:"mtu,omitempty"`
	OnLink   bool         `json:"on_link,omitempty"`
}

// File is a file that was written.
type File struct {
	Path    string      `json:"path"`
	Old     []byte      `json:"old,omitempty"`
	Mode    os.FileMode `json:"mode,omitempty"`
	Existed bool        `json:"existed"`
	// New is the content that was written. A file that another program has changed since is not
	// restored.
	New []byte `json:"new"`
}

// String returns a description of the changed thing.
func (c Change) String() string {
	switch {
	case c.Sysctl != nil:
		return "the setting " + c.Sysctl.Path
	case c.LinkUp != nil:
		return "the state of link " + c.LinkUp.Link
	case c.Address != nil:
		return fmt.Sprintf("the address %v of %s", c.Address.Prefix, c.Address.Link)
	case c.Route != nil:
		return fmt.Sprintf("the route to %v by %s", c.Route.To, c.Route.Link)
	case c.File != nil:
		return "the file " + c.File.Path
	}
	return "nothing"
}

// Link returns the link that was changed, or an empty string.
func (c Change) Link() string {
	switch {
	case c.Sysctl != nil:
		return filepath.Base(filepath.Dir(c.Sysctl.Path))
	case c.LinkUp != nil:
		return c.LinkUp.Link
	case c.Address != nil:
		return c.Address.Link
	case c.Route != nil:
		return c.Route.Link
	}
	return ""
}

// undo restores the earlier state. A link that is gone has nothing to restore.
func (c Change) undo() error {
	var err error
	switch {
	case c.Sysctl != nil:
		err = c.Sysctl.undo()
	case c.LinkUp != nil:
		err = c.LinkUp.undo()
	case c.Address != nil:
		err = c.Address.undo(time.Since(c.At))
	case c.Route != nil:
		err = c.Route.undo()
	case c.File != nil:
		err = c.File.undo()
	}
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return nil
	}
	return err
}

// undo writes the old value.
func (s *Sysctl) undo() error {
	err := os.WriteFile(filepath.Join("/proc/sys", s.Path), []byte(s.Old), 0o644)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// undo sets the link down.
func (l *LinkUp) undo() error {
	link, err := netlink.LinkByName(l.Link)
	if err != nil {
		return err
	}
	return netlink.LinkSetDown(link)
}

// undo adds the address again, with the rest of its lifetime.
func (a *Address) undo(passed time.Duration) error {
	link, err := netlink.LinkByName(a.Link)
	if err != nil {
		return err
	}
	addr := &netlink.Addr{IPNet: ipNet(a.Prefix), Label: a.Label, Scope: a.Scope, Flags: a.Flags, Broadcast: net.IPv4zero} // zero: none
	if a.Peer.IsValid() {
		addr.Peer = ipNet(a.Peer)
	}
	if a.Broadcast.IsValid() {
		addr.Broadcast = a.Broadcast.AsSlice()
	}
	if a.Valid > 0 {
		rest := a.Valid - passed
		if rest < time.Second {
			return nil
		}
		addr.ValidLft, addr.PreferedLft = int(rest/time.Second), int(max(a.Preferred-passed, 0)/time.Second)
	}
	return netlink.AddrReplace(link, addr)
}

// undo adds the route again.
func (r *Route) undo() error {
	link, err := netlink.LinkByName(r.Link)
	if err != nil {
		return err
	}
	route := &netlink.Route{
		LinkIndex: link.Attrs().Index, Dst: ipNet(r.To),
		Table: r.Table, Priority: r.Metric, Scope: netlink.Scope(r.Scope),
		Protocol: netlink.RouteProtocol(r.Protocol), Type: r.Type, Tos: r.TOS, MTU: r.MTU,
	}
	if r.Via.IsValid() {
		route.Gw = r.Via.AsSlice()
	}
	if r.Source.IsValid() {
		route.Src = r.Source.AsSlice()
	}
	if r.OnLink {
		route.Flags = int(netlink.FLAG_ONLINK)
	}
	err = netlink.RouteReplace(route)
	if errors.Is(err, unix.ENETDOWN) {
		return nil // the link is down, and would have lost the route anyway
	}
	return err
}

// undo restores the old file, unless another program has changed it since.
func (f *File) undo() error {
	now, err := os.ReadFile(f.Path)
	if errors.Is(err, os.ErrNotExist) && !f.Existed {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err == nil && !bytes.Equal(now, f.New) {
		return nil // changed by another program
	}
	if !f.Existed {
		return os.Remove(f.Path)
	}
	return wholefile.Replace(f.Path, f.Old, f.Mode)
}

// ipNet converts a prefix.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefix converts a network, and returns false if it is none.
func prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a.Unmap(), ones), true
}

// sysctl joins the parts of a setting's path.
func sysctl(parts ...string) string { return strings.Join(parts, "/") }
