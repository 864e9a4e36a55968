package hosts

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Learn learns from a frame that came in by a port and returns what has changed: nothing for a
// known host with known addresses. A frame that moves an address from one host to another
// returns two changes, one for each host.
func (t *Table) Learn(h *packet.Headers, at topology.PortRef, now time.Time) []Change {
	if h.EthSrc.IsMulticast() || h.EthSrc.IsZero() {
		return nil
	}
	vlan := h.VLANID
	if t.opts.IgnoreVLAN {
		vlan = 0
	}
	c := senderInfoOf(h, t.opts.Subnets)
	if !t.pins.Load().allow(h.EthSrc, c.addr, at) {
		if !t.opts.Edge(at) {
			return nil // a forwarded packet of the pinned host
		}
		return []Change{t.refused.refuse(nil, at, Pinned)}
	}
	e := t.known.find(h.EthSrc, vlan)
	if e != nil {
		if s := e.state.Load(); s.at == at && (s.knows(c) || c.weak && t.ips.holder(c.addr, vlan) != nil) {
			if e.markSeen(now) {
				t.recordSeenAgain(e)
			}
			return nil
		}
	}
	if (e == nil || e.state.Load().at != at) && !t.opts.Edge(at) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.learn(observation{mac: h.EthSrc, vlan: vlan, at: at, sender: c, now: now, seen: now})
}

// observation holds what a frame shows: a host, its port, and the address that it uses.
type observation struct {
	mac    openflow.MAC
	vlan   uint16
	at     topology.PortRef
	sender senderInfo
	now    time.Time
	seen   time.Time // when the frame arrived: earlier than now if it had to be confirmed first
	// confirmed, if set, is the known host about which the observation's claim has been accepted.
	// placed is true if a service has placed the host; then nothing has to be confirmed.
	confirmed *entry
	placed    bool
}

// senderInfo holds what a frame shows about its sender besides the MAC address and the port.
type senderInfo struct {
	addr netip.Addr
	// weak is true for an address that the sender need not own.
	weak   bool
	router RouterState
}

func (s *state) knows(c senderInfo) bool {
	return (!c.addr.IsValid() || slices.Contains(s.ips, c.addr)) && (c.router == RouterUnknown || c.router == s.router)
}

// senderInfoOf returns the address that the sender of the frame uses. The source of an ordinary
// IP packet counts only in the given subnets.
func senderInfoOf(h *packet.Headers, subnets []netip.Prefix) (c senderInfo) {
	switch {
	case h.Has(packet.ARP):
		if h.ARPSHA == h.EthSrc {
			c.addr = h.Src
		}
	case h.Has(packet.ND):
		c = ndSenderInfo(h)
	case h.IsIP():
		switch {
		case h.Has(packet.IPv6) && h.Src.IsLinkLocalUnicast():
			c.addr = h.Src
		case slices.ContainsFunc(subnets, func(p netip.Prefix) bool { return p.Contains(h.Src) }):
			c.addr, c.weak = h.Src, true
		}
	}
	if !isHostAddress(c.addr) {
		c.addr = netip.Addr{}
	}
	return c
}

// ndSenderInfo reads a neighbour discovery packet. The hop limit of 255 proves that the packet
// has crossed no router.
func ndSenderInfo(h *packet.Headers) (c senderInfo) {
	if h.TTL != 255 {
		return c
	}
	switch h.ICMPType {
	case packet.NeighborSolicitation, packet.RouterSolicitation:
		if h.NDLink == h.EthSrc {
			c.addr = h.Src
		}
	case packet.RouterAdvertisement:
		c.addr, c.router = h.Src, IsRouter
	case packet.NeighborAdvertisement:
		if h.NDLink.IsZero() || h.NDLink == h.EthSrc {
			c.addr, c.router = h.NDTarget, NotRouter
			if h.NDFlags&packet.NDRouter != 0 {
				c.router = IsRouter
			}
		}
	}
	return c
}

// isHostAddress reports whether a host can have the address. It cannot recognise broadcast
// addresses of subnets.
func isHostAddress(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// learn applies an observation and returns the changes. The mutex is held.
func (t *Table) learn(a observation) []Change {
	if !t.pins.Load().allow(a.mac, a.sender.addr, a.at) {
		return nil // hosts were pinned after Learn checked the frame
	}
	e := t.known.find(a.mac, a.vlan) // another goroutine may have added it
	var changes []Change
	switch {
	case e == nil:
		old, ok := t.places.makeRoom(a.at)
		if !ok {
			return []Change{t.refused.refuse(nil, a.at, Full)}
		}
		changes = append(changes, Change{Kind: Added})
		if old != nil {
			changes = append(changes, t.remove(old))
		}
		e = t.add(a.mac, a.vlan, a.at, a.now)
	case e.state.Load().at != a.at:
		from := e.state.Load().at
		if moved, why := t.checkMove(e, a); !moved {
			return why
		}
		if !t.move(e, a.at, a.now) {
			return []Change{t.refused.refuse(e, a.at, Full)}
		}
		changes = append(changes, Change{Kind: Moved, From: from})
		if !a.placed {
			e.countFlap(from, a.now)
		}
	}
	if e.markSeen(a.now) {
		t.unsaved.record(e)
	}
	lost := t.assignAddress(e, a)
	if len(changes) == 0 && lost.Kind == Changed {
		changes = append(changes, Change{Kind: Changed})
	}
	if len(changes) > 0 {
		changes[0].Host = e.host()
	}
	if lost.Kind == ClaimPending || lost.Kind == ClaimRefused || !lost.Host.MAC.IsZero() {
		changes = append(changes, lost)
	}
	return changes
}

// checkMove reports whether a host is to be moved to the observed port, and returns the changes
// to report if it is not. The mutex is held.
func (t *Table) checkMove(e *entry, a observation) (bool, []Change) {
	if a.placed || e == a.confirmed {
		return true, nil
	}
	if pin, kept := t.opts.ManagedAt(a.mac, netip.Addr{}); kept {
		return pin.At == a.at, nil
	}
	s := e.state.Load()
	if a.now.UnixNano()-s.moved < int64(t.opts.MoveHold) && t.opts.Edge(s.at) {
		return false, nil
	}
	if t.claims.needsConfirmation(e, a) {
		return false, []Change{t.claims.openClaim(e, netip.Addr{}, a)}
	}
	return true, nil
}

func (t *Table) add(mac openflow.MAC, vlan uint16, at topology.PortRef, now time.Time) *entry {
	e := &entry{mac: mac, vlan: vlan, added: now.UnixNano()}
	e.seen.Store(now.UnixNano())
	e.state.Store(&state{at: at})
	t.places.add(e)
	t.known.add(key(mac, vlan), e)
	t.unsaved.record(e)
	return e
}

func (t *Table) move(e *entry, at topology.PortRef, now time.Time) bool {
	if t.places.portFull(at) || e.state.Load().at.Switch != at.Switch && t.places.switchFull(at.Switch) {
		return false
	}
	t.places.leave(e)
	t.update(e, func(s *state) { s.at, s.moved = at, now.UnixNano() })
	t.places.enter(e)
	return true
}

// assignAddress gives e the address and router state that its frame shows. The returned change
// has a kind if anything changed, and a host if another host has lost the address or is to be
// asked for it.
func (t *Table) assignAddress(e *entry, a observation) (lost Change) {
	s, c := e.state.Load(), a.sender
	if c.router != RouterUnknown && c.router != s.router {
		t.update(e, func(s *state) { s.router = c.router })
	}
	if !c.addr.IsValid() || slices.Contains(s.ips, c.addr) {
		return Change{}
	}
	if pin, kept := t.opts.ManagedAt(openflow.MAC{}, c.addr); kept && !a.placed && pin != (Pin{MAC: a.mac, At: a.at}) {
		return Change{}
	} else if old := t.ips.holder(c.addr, e.vlan); old != nil {
		switch {
		case c.weak:
			return Change{}
		case !kept && t.claims.needsConfirmation(old, a):
			return t.claims.openClaim(old, c.addr, a)
		}
		t.drop(old, c.addr)
		if !a.placed {
			old.countFlap(a.at, a.now)
		}
		lost.Host, lost.Lost, lost.From = old.host(), c.addr, a.at
	}
	if len(s.ips) >= t.opts.MaxIPs {
		t.drop(e, s.ips[0])
	}
	t.update(e, func(s *state) { s.ips = append(s.ips, c.addr) })
	t.ips.add(c.addr, e)
	lost.Kind = Changed
	return lost
}

// drop removes an address from a host.
func (t *Table) drop(e *entry, addr netip.Addr) {
	t.update(e, func(s *state) {
		s.ips = slices.DeleteFunc(s.ips, func(a netip.Addr) bool { return a == addr })
	})
	t.ips.remove(addr, e)
}

// remove removes a host from the table. The mutex is held.
func (t *Table) remove(e *entry) Change {
	c := Change{Kind: Removed, Host: e.host()}
	k := key(e.mac, e.vlan)
	t.known.remove(k)
	for _, a := range c.Host.IPs {
		t.ips.remove(a, e)
	}
	t.places.remove(e)
	t.unsaved.recordRemoval(k, c.Host.At.Switch)
	return c
}

// RemovePort removes the hosts behind a port that went down or turned out to lead to another
// switch.
func (t *Table) RemovePort(at topology.PortRef) []Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.removeAll(slices.Collect(maps.Keys(t.places.behind(at))))
}

// RemoveSwitch removes the hosts behind all ports of a switch.
func (t *Table) RemoveSwitch(d openflow.DatapathID) []Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.removeAll(slices.Collect(t.places.at(d)))
}

// Expire removes the hosts that were not seen for Options.Age, and those of switches that have
// not returned. A restored host gets that much time from the controller's start.
func (t *Table) Expire(now time.Time) []Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	limit := now.Add(-t.opts.Age).UnixNano()
	var old []*entry
	for d, p := range t.places.switches {
		gone := !p.leftAt.IsZero() && now.Sub(p.leftAt) > departedAge
		for e := range t.places.at(d) {
			if gone || max(e.seen.Load(), e.added) < limit {
				old = append(old, e)
			}
		}
	}
	return t.removeAll(old)
}

// removeAll removes hosts from the table, in order of their addresses. The mutex is held.
func (t *Table) removeAll(gone []*entry) []Change {
	slices.SortFunc(gone, func(a, b *entry) int { return cmp.Compare(key(a.mac, a.vlan), key(b.mac, b.vlan)) })
	changes := make([]Change, 0, len(gone))
	for _, e := range gone {
		changes = append(changes, t.remove(e))
	}
	return changes
}
