package host

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// changesBuffer is asked for so that what the kernel tells waits while the host does something else, in bytes.
const changesBuffer = 1 << 20

// watch has each link that is not there looked for whenever an interface of this machine has changed, or an address or
// a route, and hello said where a carrier is back, until ctx ends. Without it they are looked for now and then.
func (h *Host) watch(ctx context.Context) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE)
	if err != nil {
		h.Log.Warn("changes of interfaces are noticed late", "error", err)
		return
	}
	defer s.Close()
	defer context.AfterFunc(ctx, s.Close)()
	if s.SetReceiveBufferSize(changesBuffer, true) != nil {
		_ = s.SetReceiveBufferSize(changesBuffer, false) // as much as there may be
	}
	for {
		messages, _, err := s.Receive()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, unix.ENOBUFS):
			h.missed()
		case err != nil:
			h.Log.Warn("changes of interfaces are noticed late from now on", "error", err)
			return
		}
		for _, m := range messages {
			if m.Header.Type == unix.RTM_NEWLINK && len(m.Data) >= unix.SizeofIfInfomsg {
				h.described(m.Data)
			}
		}
		for _, l := range h.links {
			l.poke()
		}
	}
}

// described takes what the kernel says of an interface: struct ifinfomsg, and attributes.
func (h *Host) described(b []byte) {
	info := nl.DeserializeIfInfomsg(b)
	attributes, err := nl.ParseRouteAttr(b[unix.SizeofIfInfomsg:])
	if err != nil || info.Flags&unix.IFF_RUNNING == 0 {
		return
	}
	for _, a := range attributes {
		if a.Attr.Type == unix.IFLA_CARRIER_CHANGES && len(a.Value) >= 4 {
			h.plugged(int(info.Index), binary.NativeEndian.Uint32(a.Value))
		}
	}
}

// plugged takes how often the carrier of an interface that has one has changed. If it was away, the interface may be
// plugged in elsewhere.
func (h *Host) plugged(index int, changes uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.links {
		if l.up && l.Index == index && l.carrier != changes {
			l.carrier = changes
			l.plugged()
		}
	}
}

// missed is for changes that were not told: each interface may be plugged in elsewhere.
func (h *Host) missed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.links {
		if l.up && l.Index != 0 {
			l.plugged()
		}
	}
}

// poke tells that something has changed.
func (l *link) poke() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// await waits for a change of an interface, for so long at most. It says whether there was one.
func (l *link) await(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-l.changed:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
