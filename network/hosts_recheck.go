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

// rechecks corrects claims about hosts that were accepted too soon: a host that is said to have
// moved or to have lost an address is probed again at its old port. A host that could not answer in
// time, because its switch was disconnected or stalled, regains its place by its answer to a later
// probe. When its switch is back, the host is probed at once.
type rechecks struct {
	prober  *hostProber
	anchors *anchors

	mu      sync.Mutex
	pending []*recheck
	wake    signal // set when a recheck is pending

	announceLimiter switchLimiter
}

// recheck holds a host as it was before a claim was accepted, and the addresses to probe it for.
type recheck struct {
	question    hosts.Question
	claimedAt   PortRef // port of the host that made the claim
	lostAddress bool    // the host lost an address and did not move
	begun       time.Time
	since       time.Time // start of the present series of probes
	probes      int       // number of probes in the series
	unreachable bool      // whether the host was unreachable when last checked
}

var (
	// recheckAfter holds the times after the claim at which the host is probed again.
	recheckAfter = []time.Duration{time.Second, 3 * time.Second, 8 * time.Second, 20 * time.Second}
	// recheckInterval is the interval at which due rechecks are looked for.
	recheckInterval = 250 * time.Millisecond
)

// maxRecheckWait is how long a recheck waits for an unreachable host. The hosts of a disconnected
// switch are kept for the same time.
const maxRecheckWait = time.Minute

const (
	// Bounds on pending rechecks: in all, and of claims made at one switch and at one port. When a
	// bound is reached, a recheck is evicted at the switch and port where most are pending.
	maxRechecks          = 1024
	maxRechecksPerSwitch = maxRechecks / 4
	maxRechecksPerPort   = maxRechecks / 8
)

// Rates of announcements of addresses that have changed hands, by the switch at which the address
// was claimed and in all.
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

// add schedules the recheck of a host that has moved or lost an address.
func (a *rechecks) add(c hosts.Change, now time.Time) {
	was, ask, claimedAt := c.Host, c.Host.IPs, c.From
	switch {
	case c.Kind == hosts.Moved:
		was.At, claimedAt = c.From, c.Host.At
	case c.Lost.IsValid():
		ask = []netip.Addr{c.Lost}
	default:
		return
	}
	if _, anchored := a.anchors.lookup(was.MAC, netip.Addr{}); anchored || len(ask) == 0 {
		return
	}
	m := &recheck{claimedAt: claimedAt, lostAddress: c.Lost.IsValid(), begun: now, since: now}
	m.question.Host, m.question.Ask = was, hosts.AddressesToAsk(ask)
	a.insert(m)
	a.wake.set()
}

// due returns the rechecks to make now, and whether any remain pending. reachable reports whether
// hosts behind a port can be probed and their answers accepted.
func (a *rechecks) due(now time.Time, reachable func(PortRef) bool) (ask []*recheck, left bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending = slices.DeleteFunc(a.pending, func(m *recheck) bool {
		timedOut := now.Sub(m.begun) >= maxRecheckWait
		unreachable := !reachable(m.question.Host.At)
		switch {
		case m.unreachable && !unreachable && !timedOut:
			ask = append(ask, m)
			m.since, m.probes = now, 0
		case m.probes < len(recheckAfter) && now.Sub(m.since) >= recheckAfter[m.probes]:
			ask = append(ask, m)
			m.probes++
		}
		m.unreachable = unreachable
		return m.probes == len(recheckAfter) && (!unreachable || timedOut)
	})
	return ask, len(a.pending) > 0
}

// run makes the rechecks that are due until ctx ends.
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

// ask probes a host again. It also repeats the announcement of an address that the host has lost,
// because Linux ignores a second announcement within one second, and the first one may have been
// ignored.
func (a *rechecks) ask(m *recheck, now time.Time) {
	if !a.isRestored(m.question) {
		a.prober.probeKnownPort(m.question)
	}
	if m.lostAddress {
		a.announce(m.question.Ask[0], m.question.Host.VLAN, m.claimedAt.Switch, now)
	}
}

// isRestored reports whether the host is back at its port with all addresses.
func (a *rechecks) isRestored(x hosts.Question) bool {
	h, known := a.prober.hosts.ByMAC(x.Host.MAC, x.Host.VLAN)
	return known && h.At == x.Host.At && !slices.ContainsFunc(x.Ask, func(addr netip.Addr) bool { return !slices.Contains(h.IPs, addr) })
}

// announce tells all hosts which host has an address now. A host that believed another claim would
// send to the wrong host until its neighbour entry expires. announce leaves the addresses that a
// service manages to that service. The announcement is charged to the switch at which the address
// was claimed.
func (a *rechecks) announce(addr netip.Addr, vlan uint16, claimedAt openflow.DatapathID, now time.Time) {
	if _, kept := a.anchors.lookup(openflow.MAC{}, addr); kept {
		return
	}
	owner, found := a.prober.hosts.Neighbor(addr, vlan)
	if !found || addr.Is6() && owner.Router == hosts.RouterUnknown || !a.announceLimiter.allow(claimedAt, now) {
		return
	}
	frame := announcement(addr, owner, vlan)
	towards := a.prober.edgeOutputs()
	if vlan != 0 {
		towards = a.prober.taggedOutputs()[vlan]
	}
	for s, actions := range towards {
		if err := s.PacketOut(openflow.PortController, actions, frame); err != nil {
			s.logLimiter.Warn(a.prober.log, "announcing an address", "switch", s.dpid, "address", addr, "error", err)
		}
	}
}

// announcement returns the frame by which a host announces its own address.
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

// The IPv6 multicast address of all nodes (RFC 4291, section 2.7.1) and its Ethernet address.
var (
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = openflow.MAC{0x33, 0x33, 0, 0, 0, 1}
)

// insert adds a recheck. At a bound it first evicts another one: of the same port, of the same
// switch, or of all, depending on the bound. Among these it takes the switch at which most claims
// were made, then the port, then the switch to probe, and evicts the oldest recheck there. So
// invented claims displace only each other.
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

// count returns the number of pending rechecks that among accepts.
func (a *rechecks) count(among func(*recheck) bool) (n int) {
	for _, m := range a.pending {
		if among(m) {
			n++
		}
	}
	return n
}

// evict drops one of the rechecks that among accepts; there is at least one. The mutex is held.
func (a *rechecks) evict(among func(*recheck) bool) {
	for _, level := range []func(*recheck) PortRef{
		func(m *recheck) PortRef { return PortRef{Switch: m.claimedAt.Switch} },
		func(m *recheck) PortRef { return m.claimedAt },
		func(m *recheck) PortRef { return PortRef{Switch: m.question.Host.At.Switch} },
	} {
		wider, most := among, mostCommon(a.pending, among, level)
		among = func(m *recheck) bool { return wider(m) && level(m) == most }
	}
	i := slices.IndexFunc(a.pending, among)
	a.pending = slices.Delete(a.pending, i, i+1)
}

// mostCommon returns the port that where returns for most of the rechecks that among accepts.
func mostCommon(all []*recheck, among func(*recheck) bool, where func(*recheck) PortRef) (place PortRef) {
	counts := map[PortRef]int{}
	for _, m := range all {
		if !among(m) {
			continue
		}
		at := where(m)
		if counts[at]++; counts[at] > counts[place] {
			place = at
		}
	}
	return place
}
