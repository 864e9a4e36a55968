package network

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// amends put right what was believed too soon: whoever was said to have moved, or has lost
// an address, is asked again where it was. One that could not answer in time, since its
// switch was away or stood still, claims its own by answering then: at once when its switch
// is there again.
type amends struct {
	asker   *asker
	anchors *anchors

	mu   sync.Mutex
	open []*amend
	wake signal // there is one

	announced budget // of announcements
}

// amend is a host as it was, with the addresses to ask for.
type amend struct {
	doubt hosts.Doubt
	by    PortRef // where who claimed it stands
	lost  bool    // an address
	begun time.Time
	since time.Time // the questions count from then
	asked int
	away  bool // it could not be asked when it was looked at last
}

var (
	// amendAfter is when a host is asked again.
	amendAfter = []time.Duration{time.Second, 3 * time.Second, 8 * time.Second, 20 * time.Second}
	// amendEvery is how often is looked whether one is due.
	amendEvery = 250 * time.Millisecond
)

// amendsWait is for how long a host is waited for that cannot be asked: as long as its
// switch's hosts are kept.
const amendsWait = time.Minute

const (
	// Bounds of the hosts that are to be asked at once: in all, and because of claims at
	// one switch and at one port. Beyond them one of where most are is not.
	maxAmends          = 1024
	maxAmendsPerSwitch = maxAmends / 4
	maxAmendsPerPort   = maxAmends / 8
)

// announcements of addresses that have changed hands go out by the switch at which the
// address was claimed.
var (
	announcementsEach = rate{burst: 32, interval: 40 * time.Millisecond}
	announcementsAll  = rate{burst: 64, interval: 20 * time.Millisecond}
)

func newAmends(q *asker, s *anchors) amends {
	return amends{
		asker: q, anchors: s, wake: newSignal(),
		announced: budget{each: announcementsEach, all: announcementsAll},
	}
}

// later takes note of a host that has moved or lost an address.
func (a *amends) later(c hosts.Change, now time.Time) {
	was, ask, by := c.Host, c.Host.IPs, c.From
	switch {
	case c.Kind == hosts.Moved:
		was.At, by = c.From, c.Host.At
	case c.Lost.IsValid():
		ask = []netip.Addr{c.Lost}
	default:
		return
	}
	if _, kept := a.anchors.keeps(was.MAC, netip.Addr{}); kept || len(ask) == 0 {
		return
	}
	m := &amend{by: by, lost: c.Lost.IsValid(), begun: now, since: now}
	m.doubt.Host, m.doubt.Ask = was, hosts.Asked(ask)
	a.note(m)
	a.wake.set()
}

// due takes those that are to be asked now; left says that others are still to be. there
// says whether a host can be asked behind a port, and answers there be believed.
func (a *amends) due(now time.Time, there func(PortRef) bool) (ask []*amend, left bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = slices.DeleteFunc(a.open, func(m *amend) bool {
		waited := now.Sub(m.begun) >= amendsWait
		away := !there(m.doubt.Host.At)
		switch {
		case m.away && !away && !waited:
			ask = append(ask, m)
			m.since, m.asked = now, 0
		case m.asked < len(amendAfter) && now.Sub(m.since) >= amendAfter[m.asked]:
			ask = append(ask, m)
			m.asked++
		}
		m.away = away
		return m.asked == len(amendAfter) && (!away || waited)
	})
	return ask, len(a.open) > 0
}

// run is the clock of amends.
func (a *amends) run(ctx context.Context) {
	there := func(at PortRef) bool { return a.asker.links.IsEdge(at) && a.asker.switches.reachable(at) }
	whileWoken(ctx, a.wake, amendEvery, func(now time.Time) (left bool) {
		ask, left := a.due(now, there)
		for _, m := range ask {
			a.make(m, now)
		}
		return left
	})
}

// make asks a host again. Whose an address is that it has lost is told again, too:
// Linux takes no news of an address within a second of the last, in which the first
// announcement may have come.
func (a *amends) make(m *amend, now time.Time) {
	if !a.isWhereItWas(&m.doubt) {
		a.asker.whereItWas(&m.doubt)
	}
	if m.lost {
		a.announce(m.doubt.Ask[0], m.doubt.Host.VLAN, m.by.Switch, now)
	}
}

// isWhereItWas says whether nothing is to be put right any more.
func (a *amends) isWhereItWas(x *hosts.Doubt) bool {
	h, known := a.asker.hosts.ByMAC(x.Host.MAC, x.Host.VLAN)
	return known && h.At == x.Host.At && !slices.ContainsFunc(x.Ask, func(addr netip.Addr) bool { return !slices.Contains(h.IPs, addr) })
}

// announce tells all hosts whose an address is now that has changed hands: who has heard
// otherwise would go on sending to the other for as long as its neighbour table says so.
// What a service keeps, it tells itself. by is the switch at which the address was claimed.
func (a *amends) announce(addr netip.Addr, vlan uint16, by openflow.DatapathID, now time.Time) {
	if _, kept := a.anchors.keeps(openflow.MAC{}, addr); kept {
		return
	}
	owner, known := a.asker.hosts.Neighbor(addr, vlan)
	if !known || addr.Is6() && owner.Router == hosts.RouterUnknown || !a.announced.take(by, now) {
		return
	}
	frame := announcement(addr, owner, vlan)
	towards := a.asker.edgeOutputs()
	if vlan != 0 {
		towards = a.asker.taggedOutputs()[vlan]
	}
	for s, actions := range towards {
		if err := s.PacketOut(openflow.PortController, actions, frame); err != nil {
			s.limiter.Warn(a.asker.log, "telling hosts whose an address is", "switch", s.dpid, "address", addr, "error", err)
		}
	}
}

// announcement is what a host says to all when an address is its own.
func announcement(addr netip.Addr, owner hosts.Neighbor, vlan uint16) []byte {
	if addr.Is4() {
		return packet.AppendARPRequest(nil, owner.MAC, addr, addr, vlan)
	}
	flags := uint8(packet.NDOverride)
	if owner.Router == hosts.IsRouter {
		flags |= packet.NDRouter
	}
	return packet.AppendNeighborAdvertisement(nil, packet.Frame{Dst: allNodesMAC, Src: owner.MAC, VLAN: vlan},
		packet.Advertisement{Target: addr, MAC: owner.MAC, To: allNodes, Flags: flags})
}

// The IPv6 address of all nodes (RFC 4291, 2.7.1), and the group address that it goes to.
var (
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = openflow.MAC{0x33, 0x33, 0, 0, 0, 1}
)

// note takes note of one more that is to be asked. Where one more has no place, another of
// the same port, of the same switch or of all gives way: the oldest of where most are, by
// the switch and port of who claims, then by the switch of who is to be asked. So claims
// of hosts that somebody has made up push out each other, and nobody else's.
func (a *amends) note(m *amend) {
	a.mu.Lock()
	defer a.mu.Unlock()
	atSwitch := func(o *amend) bool { return o.by.Switch == m.by.Switch }
	atPort := func(o *amend) bool { return o.by == m.by }
	switch {
	case a.count(atPort) >= maxAmendsPerPort:
		a.giveWay(atPort)
	case a.count(atSwitch) >= maxAmendsPerSwitch:
		a.giveWay(atSwitch)
	case len(a.open) >= maxAmends:
		a.giveWay(func(*amend) bool { return true })
	}
	a.open = append(a.open, m)
}

func (a *amends) count(among func(*amend) bool) (n int) {
	for _, m := range a.open {
		if among(m) {
			n++
		}
	}
	return n
}

// giveWay drops one of some, of which there is at least one; the mutex is held.
func (a *amends) giveWay(among func(*amend) bool) {
	for _, level := range []func(*amend) PortRef{
		func(m *amend) PortRef { return PortRef{Switch: m.by.Switch} },
		func(m *amend) PortRef { return m.by },
		func(m *amend) PortRef { return PortRef{Switch: m.doubt.Host.At.Switch} },
	} {
		wider, most := among, mostly(a.open, among, level)
		among = func(m *amend) bool { return wider(m) && level(m) == most }
	}
	i := slices.IndexFunc(a.open, among)
	a.open = slices.Delete(a.open, i, i+1)
}

// mostly is where most of some are.
func mostly(all []*amend, among func(*amend) bool, where func(*amend) PortRef) (most PortRef) {
	number := map[PortRef]int{}
	for _, m := range all {
		if !among(m) {
			continue
		}
		at := where(m)
		if number[at]++; number[at] > number[most] {
			most = at
		}
	}
	return most
}
