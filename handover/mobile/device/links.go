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
	// Present says that the interface exists, Up that it is switched on, Carrier
	// that it has a link.
	Present, Up, Carrier bool
	// Flaps counts how often the carrier went or came: a device that was plugged
	// from one place to another in an instant is told by it.
	Flaps uint32
	// Type is what the kernel calls the kind of hardware; 1 is Ethernet.
	Type uint16
}

// Ethernet is the Type of an interface that speaks Ethernet.
const Ethernet = unix.ARPHRD_ETHER

// Watch calls f with the state of each named interface, and again whenever it
// changes, until ctx ends. Calls come one after the other.
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
		case !errors.Is(err, unix.ENOBUFS): // then events were lost, and are made up for by a list
			return fmt.Errorf("watch links: %w", err)
		}
	}
}

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
				continue // not of a kind that interfaces have
			}
			if m.Header.Type == unix.RTM_DELLINK {
				if old, ok := w.known[l.Name]; ok && old.Index != l.Index {
					continue // of an interface that another one has replaced
				}
				l = Link{Name: l.Name}
			}
			w.renamed(l)
			w.note(l)
		}
	}
}

// renamed notes that a name is free when its interface has got another one.
func (w *watcher) renamed(l Link) {
	for name, old := range w.known {
		if l.Present && old.Index == l.Index && name != l.Name {
			w.note(Link{Name: name})
		}
	}
}

// Links reads the state of the named interfaces; one that is not there is not
// Present.
func Links(names ...string) ([]Link, error) {
	var out []Link
	w := watcher{names: names, known: map[string]Link{}, report: func(l Link) { out = append(out, l) }}
	if err := w.list(); err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return out, nil
}

// ReadLink reads the state of one interface as it is now. The kernel holds events
// back for up to a second when links have changed in the second before; this tells
// at once.
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

// parseLink reads a link message of the kernel's.
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

// eachAttribute visits the attributes of a netlink message, all of which have to be whole.
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

func number(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}
