package host

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// changesBuffer is the size in bytes of the socket buffer that holds the kernel's messages while
// the host is busy.
const changesBuffer = 1 << 20

// watch follows changes of the machine's interfaces, addresses and routes until ctx ends. It
// notifies all links of each change, and says hello where a carrier has returned. If the kernel
// does not report changes, the links check for them from time to time.
func (h *Host) watch(ctx context.Context) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE)
	if err != nil {
		h.Log.Warn("cannot watch interfaces: their changes are noticed late", "error", err)
		return
	}
	defer s.Close()
	defer context.AfterFunc(ctx, s.Close)()
	if s.SetReceiveBufferSize(changesBuffer, true) != nil {
		_ = s.SetReceiveBufferSize(changesBuffer, false) // as much as the limit allows
	}
	for {
		messages, _, err := s.Receive()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, unix.ENOBUFS):
			h.changesLost()
		case err != nil:
			h.Log.Warn("cannot watch interfaces any longer: their changes are noticed late", "error", err)
			return
		}
		for _, m := range messages {
			if m.Header.Type == unix.RTM_NEWLINK && len(m.Data) >= unix.SizeofIfInfomsg {
				h.handleLinkMessage(m.Data)
			}
		}
		for _, l := range h.links {
			l.notifyChanged()
		}
	}
}

// handleLinkMessage handles the kernel's description of an interface: struct ifinfomsg, and
// attributes.
func (h *Host) handleLinkMessage(b []byte) {
	info := nl.DeserializeIfInfomsg(b)
	attributes, err := nl.ParseRouteAttr(b[unix.SizeofIfInfomsg:])
	if err != nil || info.Flags&unix.IFF_RUNNING == 0 {
		return
	}
	for _, a := range attributes {
		if a.Attr.Type == unix.IFLA_CARRIER_CHANGES && len(a.Value) >= 4 {
			h.carrierChanged(int(info.Index), binary.NativeEndian.Uint32(a.Value))
		}
	}
}

// carrierChanged handles the number of carrier changes of an interface with a carrier. If the
// carrier was lost, the interface may be connected to another network.
func (h *Host) carrierChanged(index int, changes uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.links {
		if l.up && l.Index == index && l.carrier != changes {
			l.carrier = changes
			l.connected()
		}
	}
}

// changesLost handles lost messages of the kernel: each interface may be connected to another
// network.
func (h *Host) changesLost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.links {
		if l.up && l.Index != 0 {
			l.connected()
		}
	}
}

// notifyChanged signals that an interface has changed.
func (l *link) notifyChanged() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// awaitChange waits for a change of an interface up to the timeout, and reports whether there was
// one.
func (l *link) awaitChange(ctx context.Context, timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-l.changed:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
