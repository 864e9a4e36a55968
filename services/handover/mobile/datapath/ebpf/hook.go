package ebpf

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The two hooks of clsact.
const (
	ingress = netlink.HANDLE_MIN_INGRESS
	egress  = netlink.HANDLE_MIN_EGRESS
)

// hookPriority leaves room for other programs before and after ours.
const hookPriority = 0x51c

// hooks attaches programs under one name, by which the programs of a killed daemon are found again.
type hooks struct{ name string }

// hooksOf returns the hooks for the programs of a VNI.
func hooksOf(vni string) hooks { return hooks{name: "sluice:" + vni} }

// attach attaches a program to a hook of an interface, where no other program has its place.
func (h hooks) attach(link netlink.Link, parent uint32, p *ebpf.Program) error {
	return h.set(link, parent, p, netlink.FilterAdd)
}

// set attaches a program to a hook of an interface by a function that adds or replaces a filter.
func (h hooks) set(link netlink.Link, parent uint32, p *ebpf.Program, by func(netlink.Filter) error) error {
	if err := netlink.QdiscAdd(clsact(link)); err != nil && !errors.Is(err, unix.EEXIST) {
		return h.refused(link, "the clsact qdisc (CONFIG_NET_SCH_INGRESS)", err)
	}
	err := by(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: link.Attrs().Index, Parent: parent, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: hookPriority,
		},
		Fd: p.FD(), Name: h.name, DirectAction: true,
	})
	if err != nil {
		return h.refused(link, "the bpf classifier (CONFIG_NET_CLS_BPF)", err)
	}
	return nil
}

// refused wraps an error of attaching a program. The result wraps datapath.ErrUnsupported if err means
// that the kernel lacks the feature what.
func (h hooks) refused(link netlink.Link, what string, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("interface %s: %w", link.Attrs().Name, unsupported(what, err))
	}
	return fmt.Errorf("interface %s: %s: %w", link.Attrs().Name, what, err)
}

// detach detaches our programs from an interface, and removes the qdisc if nothing else is
// attached to it. It reports whether there were any programs.
func (h hooks) detach(link netlink.Link) (found bool, err error) {
	others := false
	for _, parent := range []uint32{ingress, egress} {
		filters, err := netlink.FilterList(link, parent)
		if err != nil {
			return found, fmt.Errorf("interface %s: listing programs: %w", link.Attrs().Name, err)
		}
		for _, f := range filters {
			if b, ok := f.(*netlink.BpfFilter); !ok || b.Name != h.name {
				others = true
				continue
			}
			found = true
			if err := netlink.FilterDel(f); err != nil && !gone(err) {
				return found, fmt.Errorf("interface %s: detaching a program: %w", link.Attrs().Name, err)
			}
		}
	}
	if found && !others {
		if err := netlink.QdiscDel(clsact(link)); err != nil && !gone(err) {
			return found, fmt.Errorf("interface %s: removing clsact: %w", link.Attrs().Name, err)
		}
	}
	return found, nil
}

// sweep detaches our programs from all interfaces, and returns the interfaces that had some.
func (h hooks) sweep() (names []string, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	for _, link := range links {
		found, err := h.detach(link)
		if err != nil {
			return names, err
		}
		if found {
			names = append(names, link.Attrs().Name)
		}
	}
	return names, nil
}

// clsact returns the qdisc of an interface.
func clsact(link netlink.Link) *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

// gone reports whether the error says that an interface or filter has vanished.
func gone(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENOENT) || errors.Is(err, os.ErrNotExist)
}
