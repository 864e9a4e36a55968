package classifier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// filterPriority is the priority of this package's filter at the root of a token bucket.
const filterPriority = 0x51

// errNotYet means that Open vSwitch has yet to create an object that the database asks for.
var errNotYet = errors.New("not there yet")

// kernel holds the state of the network namespace at one moment.
type kernel struct {
	// buckets holds the indices of interfaces whose root is a token bucket of Open vSwitch.
	buckets map[int]bool
	// leaves holds the classes that have a queue of this package.
	leaves map[leafAt]bool
}

// leafAt identifies a class of an interface.
type leafAt struct {
	link  int
	class uint16
}

var root = netlink.MakeHandle(htbMajor, 0)

// readKernel lists the queueing disciplines of all interfaces in one request.
func readKernel() (*kernel, error) {
	all, err := netlink.QdiscList(nil)
	if err != nil {
		return nil, fmt.Errorf("list queueing disciplines: %w", err)
	}
	k := &kernel{buckets: map[int]bool{}, leaves: map[leafAt]bool{}}
	for _, q := range all {
		a := q.Attrs()
		switch {
		case q.Type() == "htb" && a.Parent == netlink.HANDLE_ROOT && a.Handle == root:
			k.buckets[a.LinkIndex] = true
		case q.Type() == leafType && a.Parent>>16 == htbMajor && a.Handle == leafHandle(uint16(a.Parent)):
			k.leaves[leafAt{a.LinkIndex, uint16(a.Parent)}] = true
		}
	}
	return k, nil
}

// leafType is the queueing discipline of leaves. It is first in, first out, and drops the oldest
// packet when it is full. A discipline that refused the newest packet would return an error to the
// packet socket. Open vSwitch would then drop all packets that it had collected for the port, of
// whatever class.
const leafType = "pfifo_head_drop"

// leafHandle returns the handle of the queue that this package sets up for a class. The kernel
// itself assigns handles from 8001: on, and Open vSwitch assigns 1: to the token bucket.
func leafHandle(class uint16) uint32 { return (firstLeaf + uint32(class)) << 16 }

// lastLeaf is the highest class whose queue can have a handle. No class in use has a higher number.
const (
	firstLeaf = 0x1000
	lastLeaf  = 0x7fff - firstLeaf
)

// ownFilters returns this package's filters at an interface, by name.
func ownFilters(link netlink.Link) (map[string]netlink.Filter, error) {
	all, err := netlink.FilterList(link, root)
	if err != nil {
		return nil, fmt.Errorf("list filters of %s: %w", link.Attrs().Name, err)
	}
	out := map[string]netlink.Filter{}
	for _, f := range all {
		if b, ok := f.(*netlink.BpfFilter); ok && strings.HasPrefix(b.Name, filterPrefix) {
			out[b.Name] = f
		}
	}
	return out, nil
}

// classify installs the filter of a table at an interface, or removes this package's
// filters if the table is empty. It reports whether it had to install the filter. Replacing a filter
// is a single step: no packet passes unclassified meanwhile.
func classify(link netlink.Link, t Table) (installed bool, err error) {
	have, err := ownFilters(link)
	if err != nil {
		return false, err
	}
	if t.isEmpty() {
		for name, f := range have {
			if err := netlink.FilterDel(f); err != nil {
				return false, fmt.Errorf("remove filter %s from %s: %w", name, link.Attrs().Name, err)
			}
		}
		return false, nil
	}
	if have[t.filterName()] != nil {
		return false, nil
	}
	p, err := t.load()
	if err != nil {
		return false, err
	}
	defer p.Close() // the filter keeps the program loaded
	err = netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: root, Handle: 1, Priority: filterPriority, Protocol: unix.ETH_P_ALL},
		Fd:          p.FD(), Name: t.filterName(),
	})
	if err != nil {
		return false, fmt.Errorf("filter of %s: %w", link.Attrs().Name, err)
	}
	return true, nil
}

// setLimit gives a class a queue of its own with a limit in packets, or changes the limit. The
// kernel takes the limit of a class's default queue from the interface's transmit queue length when
// the class is created. To change that length would change an interface that this package does not
// own.
func setLimit(link netlink.Link, class uint16, packets uint32) error {
	if class > lastLeaf {
		return fmt.Errorf("class 1:%x of %s: there is no handle for its queue", class, link.Attrs().Name)
	}
	req := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{
		Family: nl.FAMILY_ALL, Ifindex: int32(link.Attrs().Index), Handle: leafHandle(class), Parent: netlink.MakeHandle(htbMajor, class),
	})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(leafType)))
	req.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, binary.NativeEndian.AppendUint32(nil, packets))) // struct tc_fifo_qopt
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("class 1:%x of %s: %w", class, link.Attrs().Name, errNotYet)
	case err != nil:
		return fmt.Errorf("queue of class 1:%x of %s: %w", class, link.Attrs().Name, err)
	}
	return nil
}
