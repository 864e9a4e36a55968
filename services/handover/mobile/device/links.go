package device

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/genl"
	"github.com/sluice-net/sluice/openflow"
)

// Link is the state of an interface.
type Link struct {
	Name  string
	Index int
	MAC   openflow.MAC
	MTU   int
	// Present reports whether the interface exists, Up whether it is enabled, Carrier whether it
	// has a link.
	Present, Up, Carrier bool
	// Flaps counts the changes of the carrier. It shows that a device was moved to another place
	// in an instant.
	Flaps uint32
	// Type is the kernel's hardware type; 1 is Ethernet.
	Type uint16
}

// Ethernet is the Type of an Ethernet interface.
const Ethernet = unix.ARPHRD_ETHER

// Watch calls f with the state of each named interface, and again whenever it changes, until ctx
// ends. It makes one call at a time.
func Watch(ctx context.Context, names []string, f func(Link)) error {
	events, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
	if err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	var once sync.Once
	closeEvents := func() { once.Do(events.Close) }
	defer closeEvents()
	defer context.AfterFunc(ctx, closeEvents)()
	w := watcher{names: names, known: map[string]Link{}, report: f}
	for {
		if err := w.list(); err != nil {
			return fmt.Errorf("watch links: %w", err)
		}
		err := w.follow(events)
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, unix.ENOBUFS): // after ENOBUFS, which means lost events, the list is read again
			return fmt.Errorf("watch links: %w", err)
		}
	}
}

// watcher reports changes of the named interfaces.
type watcher struct {
	names  []string
	known  map[string]Link
	report func(Link)
}

// list reads the state of all interfaces.
func (w *watcher) list() error {
	links, err := list()
	if err != nil {
		return err
	}
	for _, name := range w.names {
		i := slices.IndexFunc(links, func(l Link) bool { return l.Name == name })
		if i < 0 {
			w.note(Link{Name: name})
		} else {
			w.note(links[i])
		}
	}
	return nil
}

// note reports the state of a link if it has changed.
func (w *watcher) note(l Link) {
	if old, known := w.known[l.Name]; known && old == l || !slices.Contains(w.names, l.Name) {
		return
	}
	w.known[l.Name] = l
	w.report(l)
}

// follow reads events until the socket fails or is closed.
func (w *watcher) follow(events *nl.NetlinkSocket) error {
	for {
		messages, from, err := events.Receive()
		if err != nil {
			return err
		}
		if from.Pid != nl.PidKernel {
			continue
		}
		for _, m := range messages {
			l, err := parseLink(m.Data)
			if err != nil {
				continue // not a message about an interface
			}
			if m.Header.Type == unix.RTM_DELLINK {
				if old, ok := w.known[l.Name]; ok && old.Index != l.Index {
					continue // the deleted interface's name belongs to another one already
				}
				l = Link{Name: l.Name}
			}
			w.renamed(l)
			w.note(l)
		}
	}
}

// renamed reports that an interface's old name is no longer present if l shows that the interface has
// a new name.
func (w *watcher) renamed(l Link) {
	for name, old := range w.known {
		if l.Present && old.Index == l.Index && name != l.Name {
			w.note(Link{Name: name})
		}
	}
}

// Links returns the state of the named interfaces; one that does not exist is not Present.
func Links(names ...string) ([]Link, error) {
	var out []Link
	w := watcher{names: names, known: map[string]Link{}, report: func(l Link) { out = append(out, l) }}
	if err := w.list(); err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return out, nil
}

// ReadLink returns the present state of one interface. The kernel delays events for up to a second
// if links have changed in the second before; ReadLink does not wait for them.
func ReadLink(name string) (Link, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStatistics)))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	switch {
	case errors.Is(err, unix.ENODEV):
		return Link{Name: name}, nil
	case err != nil:
		return Link{}, fmt.Errorf("link %s: %w", name, err)
	case len(messages) != 1:
		return Link{}, fmt.Errorf("link %s: %d answers", name, len(messages))
	}
	l, err := parseLink(messages[0])
	if err != nil {
		return Link{}, fmt.Errorf("link %s: %w", name, err)
	}
	return l, nil
}

// skipStatistics is RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h.
const skipStatistics = 1 << 3

// list returns the state of all interfaces.
func list() ([]Link, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return nil, err
	}
	var links []Link
	for _, m := range messages {
		l, err := parseLink(m)
		if err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	return links, nil
}

// parseLink parses a link message of the kernel.
func parseLink(b []byte) (Link, error) {
	if len(b) < unix.SizeofIfInfomsg {
		return Link{}, errors.New("a link message that ends early")
	}
	info := nl.DeserializeIfInfomsg(b)
	if info.Family != unix.AF_UNSPEC {
		return Link{}, errors.New("a link message of a protocol")
	}
	l := Link{
		Index: int(info.Index), Present: true, Type: info.Type,
		Up: info.Flags&unix.IFF_UP != 0, Carrier: info.Flags&unix.IFF_UP != 0 && info.Flags&unix.IFF_LOWER_UP != 0,
	}
	err := eachAttribute(b[info.Len():], func(kind uint16, value []byte) error {
		switch kind {
		case unix.IFLA_IFNAME:
			name, _, _ := bytes.Cut(value, []byte{0})
			l.Name = string(name)
		case unix.IFLA_ADDRESS:
			if len(value) == len(l.MAC) {
				l.MAC = openflow.MAC(value)
			}
		case unix.IFLA_MTU:
			l.MTU = int(number(value))
		case unix.IFLA_CARRIER_CHANGES:
			l.Flaps = number(value)
		}
		return nil
	})
	if err != nil {
		return Link{}, fmt.Errorf("a link message: %w", err)
	}
	return l, nil
}

// eachAttribute calls visit with the attributes of a netlink message. An incomplete attribute is
// an error.
func eachAttribute(b []byte, visit func(kind uint16, value []byte) error) error {
	for len(b) >= unix.SizeofRtAttr {
		kind, value, rest, ok := genl.Next(b)
		if !ok {
			return fmt.Errorf("an attribute of %d bytes, with %d left", binary.NativeEndian.Uint16(b), len(b))
		}
		if err := visit(kind, value); err != nil {
			return err
		}
		b = rest
	}
	return nil
}

// number decodes a number of the kernel's byte order, or returns 0 if it is too short.
func number(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}
