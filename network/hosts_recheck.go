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

// rechecks put right what was believed too soon: whoever was said to have moved, or has lost
// an address, is asked again where it was. One that could not answer in time, since its
// switch was away or stood still, claims its own by answering then: at once when its switch
// is there again.
type rechecks struct {
	prober  *hostProber
	anchors *anchors

	mu      sync.Mutex
	pending []*recheck
	wake    signal // there is one

	announceLimiter switchLimiter // of announcements
}

// recheck is a host as it was, with the addresses to ask for.
type recheck struct {
	doubt       hosts.Doubt
	claimedAt   PortRef // where who claimed it stands
	lostAddress bool    // an address
	begun       time.Time
	since       time.Time // the questions count from then
	questions   int
	unreachable bool // it could not be asked when it was looked at last
}

var (
	// recheckAfter is when a host is asked again.
	recheckAfter = []time.Duration{time.Second, 3 * time.Second, 8 * time.Second, 20 * time.Second}
	// recheckInterval is how often is looked whether one is due.
	recheckInterval = 250 * time.Millisecond
)

// maxRecheckWait is for how long a host is waited for that cannot be asked: as long as its
// switch's hosts are kept.
const maxRecheckWait = time.Minute

const (
	// Bounds of the hosts that are to be asked at once: in all, and because of claims at
	// one switch and at one port. Beyond them one of where most are is not.
	maxRechecks          = 1024
	maxRechecksPerSwitch = maxRechecks / 4
	maxRechecksPerPort   = maxRechecks / 8
)

// announcements of addresses that have changed hands go out by the switch at which the
// address was claimed.
var (
	announceRatePerSwitch = rate{burst: 32, interval: 40 * time.Millisecond}
	announceRateTotal     = rate{burst: 64, interval: 20 * time.Millisecond}
)

func newRechecks(q *hostProber, s *anchors) rechecks {
	return rechecks{
		prober: q, anchors: s, wake: newSignal(),
		announceLimiter: switchLimiter{perSwitch: announceRatePerSwitch, overall: announceRateTotal},
	}
}

// add takes note of a host that has moved or lost an address.
func (a *rechecks) add(c hosts.Change, now time.Time) {
	was, ask, by := c.Host, c.Host.IPs, c.From
	switch {
	case c.Kind == hosts.Moved:
		was.At, by = c.From, c.Host.At
	case c.Lost.IsValid():
		ask = []netip.Addr{c.Lost}
	default:
		return
	}
	if _, kept := a.anchors.lookup(was.MAC, netip.Addr{}); kept || len(ask) == 0 {
		return
	}
	m := &recheck{claimedAt: by, lostAddress: c.Lost.IsValid(), begun: now, since: now}
	m.doubt.Host, m.doubt.Ask = was, hosts.Asked(ask)
	a.insert(m)
	a.wake.set()
}

// due takes those that are to be asked now; left says that others are still to be. there
// says whether a host can be asked behind a port, and answers there be believed.
func (a *rechecks) due(now time.Time, reachable func(PortRef) bool) (ask []*recheck, left bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending = slices.DeleteFunc(a.pending, func(m *recheck) bool {
		waited := now.Sub(m.begun) >= maxRecheckWait
		away := !reachable(m.doubt.Host.At)
		switch {
		case m.unreachable && !away && !waited:
			ask = append(ask, m)
			m.since, m.questions = now, 0
		case m.questions < len(recheckAfter) && now.Sub(m.since) >= recheckAfter[m.questions]:
			ask = append(ask, m)
			m.questions++
		}
		m.unreachable = away
		return m.questions == len(recheckAfter) && (!away || waited)
	})
	return ask, len(a.pending) > 0
}

// run is the clock of amends.
func (a *rechecks) run(ctx context.Context) {
	reachable := func(at PortRef) bool { return a.prober.links.IsEdge(at) && a.prober.switches.reachable(at) }
	tickUntilIdle(ctx, a.wake, recheckInterval, func(now time.Time) (left bool) {
		ask, left := a.due(now, reachable)
		for _, m := range ask {
			a.ask(m, now)
		}
		return left
	})
}

// ask asks a host again. Whose an address is that it has lost is told again, too:
// Linux takes no news of an address within a second of the last, in which the first
// announcement may have come.
func (a *rechecks) ask(m *recheck, now time.Time) {
	if !a.isRestored(&m.doubt) {
		a.prober.probeKnownPort(&m.doubt)
	}
	if m.lostAddress {
		a.announce(m.doubt.Ask[0], m.doubt.Host.VLAN, m.claimedAt.Switch, now)
	}
}

// isRestored says whether nothing is to be put right any more.
func (a *rechecks) isRestored(x *hosts.Doubt) bool {
	h, known := a.prober.hosts.ByMAC(x.Host.MAC, x.Host.VLAN)
	return known && h.At == x.Host.At && !slices.ContainsFunc(x.Ask, func(addr netip.Addr) bool { return !slices.Contains(h.IPs, addr) })
}

// announce tells all hosts whose an address is now that has changed hands: who has heard
// otherwise would go on sending to the other for as long as its neighbour table says so.
// What a service keeps, it tells itself. by is the switch at which the address was claimed.
func (a *rechecks) announce(addr netip.Addr, vlan uint16, by openflow.DatapathID, now time.Time) {
	if _, kept := a.anchors.lookup(openflow.MAC{}, addr); kept {
		return
	}
	owner, known := a.prober.hosts.Neighbor(addr, vlan)
	if !known || addr.Is6() && owner.Router == hosts.RouterUnknown || !a.announceLimiter.allow(by, now) {
		return
	}
	frame := announcement(addr, owner, vlan)
	towards := a.prober.edgeOutputs()
	if vlan != 0 {
		towards = a.prober.taggedOutputs()[vlan]
	}
	for s, actions := range towards {
		if err := s.PacketOut(openflow.PortController, actions, frame); err != nil {
			s.logLimiter.Warn(a.prober.log, "telling hosts whose an address is", "switch", s.dpid, "address", addr, "error", err)
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

// insert takes note of one more that is to be asked. Where one more has no place, another of
// the same port, of the same switch or of all gives way: the oldest of where most are, by
// the switch and port of who claims, then by the switch of who is to be asked. So claims
// of hosts that somebody has made up push out each other, and nobody else's.
func (a *rechecks) insert(m *recheck) {
	a.mu.Lock()
	defer a.mu.Unlock()
	atSwitch := func(o *recheck) bool { return o.claimedAt.Switch == m.claimedAt.Switch }
	atPort := func(o *recheck) bool { return o.claimedAt == m.claimedAt }
	switch {
	case a.count(atPort) >= maxRechecksPerPort:
		a.evict(atPort)
	case a.count(atSwitch) >= maxRechecksPerSwitch:
		a.evict(atSwitch)
	case len(a.pending) >= maxRechecks:
		a.evict(func(*recheck) bool { return true })
	}
	a.pending = append(a.pending, m)
}

func (a *rechecks) count(among func(*recheck) bool) (n int) {
	for _, m := range a.pending {
		if among(m) {
			n++
		}
	}
	return n
}

// evict drops one of some, of which there is at least one; the mutex is held.
func (a *rechecks) evict(among func(*recheck) bool) {
	for _, level := range []func(*recheck) PortRef{
		func(m *recheck) PortRef { return PortRef{Switch: m.claimedAt.Switch} },
		func(m *recheck) PortRef { return m.claimedAt },
		func(m *recheck) PortRef { return PortRef{Switch: m.doubt.Host.At.Switch} },
	} {
		wider, most := among, mostCommon(a.pending, among, level)
		among = func(m *recheck) bool { return wider(m) && level(m) == most }
	}
	i := slices.IndexFunc(a.pending, among)
	a.pending = slices.Delete(a.pending, i, i+1)
}

// mostCommon is where most of some are.
func mostCommon(all []*recheck, among func(*recheck) bool, where func(*recheck) PortRef) (most PortRef) {
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
