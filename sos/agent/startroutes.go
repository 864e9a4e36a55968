package agent

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// startPriority is that of the rules which lead to the agents' routing tables, one
	// for each data address; startProtocol marks the routes in them as ours.
	startPriority = 7444
	startProtocol = 0x53
	// startWhile is how long a route stands after it was last wanted: it counts only
	// while connections are made, and later the way may be another.
	startWhile = 5 * time.Second
	// A receiver offers so many segments at once, as far as its buffers go.
	startReceive = 12000
	// And nobody sends more than so many into a path unseen.
	mostStart = 20000
	// The kernel's own initial window (RFC 6928).
	kernelStart = 10
)

// startRoutes are routes to peers that give new connections an initial window of
// their path's rate. They stand in a table of their own, for what comes from the
// agent's data addresses only, and no longer than connections are being made.
type startRoutes struct {
	a *Agent

	mu     sync.Mutex
	ruled  map[netip.Addr]bool // own addresses whose rule stands
	wanted map[netip.Addr]*startRoute
}

type startRoute struct {
	own, peer netip.Addr
	way       route
	window    int
	put       time.Time
	until     time.Time
	route     *netlink.Route
}

func newStartRoutes(a *Agent) *startRoutes {
	return &startRoutes{a: a, ruled: map[netip.Addr]bool{}, wanted: map[netip.Addr]*startRoute{}}
}

// open leads what comes from an own address to its table, and removes from that what an
// agent that was killed has left.
func (r *startRoutes) open(own netip.Addr) error {
	if own.IsLoopback() {
		return nil
	}
	if err := removeLeft(familyOf(own), own); err != nil {
		return err
	}
	if err := addRule(own); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ruled[own] = true
	return nil
}

// removeLeft removes what agents that were killed have left: routes of an address, and rules with their
// routes of addresses that this machine has no longer.
func removeLeft(family int, own netip.Addr) error {
	rules, err := netlink.RuleListFiltered(family, &netlink.Rule{Priority: startPriority}, netlink.RT_FILTER_PRIORITY)
	if err != nil {
		return fmt.Errorf("rules of priority %d: %w", startPriority, err)
	}
	addrs, err := netlink.AddrList(nil, family)
	if err != nil {
		return fmt.Errorf("addresses of this machine: %w", err)
	}
	removeRoutes(family, startTable(own))
	for _, rule := range rules {
		ours := rule.Table>>24 == startProtocol && rule.Src != nil
		if ours && !slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.Equal(rule.Src.IP) }) {
			removeRoutes(family, rule.Table)
			_ = netlink.RuleDel(&rule)
		}
	}
	return nil
}

// removeRoutes removes routes of ours from a table.
func removeRoutes(family, table int) {
	left, _ := netlink.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE) // there may be no such table
	for _, x := range left {
		if x.Protocol == startProtocol {
			_ = netlink.RouteDel(&x)
		}
	}
}

// addRule leads what comes from an own address to its table, if nothing does.
func addRule(own netip.Addr) error {
	if err := netlink.RuleAdd(startRule(own)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("rule from %v: %w", own, err)
	}
	return nil
}

// want has connections with a peer begin with a window of so many segments, or the
// kernel's own if that is more.
func (r *startRoutes) want(own, peer netip.Addr, way route, window int) {
	own, peer = own.Unmap(), peer.Unmap()
	window = min(max(window, kernelStart), mostStart)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ruled[own] || own.Is4() != peer.Is4() {
		return
	}
	now := time.Now()
	x := r.wanted[peer]
	if x == nil && len(r.wanted) >= rememberPeers {
		return
	}
	if x != nil && x.way == way && x.own == own && now.Sub(x.put) < routeAge {
		x.until = now.Add(startWhile)
		if window < x.window*3/4 { // the route is that of others' connections, too
			x.window, x.route.InitCwnd = window, window
			_ = netlink.RouteReplace(x.route)
		}
		return
	}
	if x != nil {
		x.remove() // or it would be found for the kernel's own
		delete(r.wanted, peer)
	}
	x = &startRoute{own: own, peer: peer, way: way, window: window, put: now, until: now.Add(startWhile)}
	if err := x.set(); err != nil {
		r.a.strange.Warn(r.a.log, "connections with a peer start slowly", "peer", peer, "error", err)
		return
	}
	r.wanted[peer] = x
}

// set writes the route, as the kernel leads the peer's packets without it. It leaves
// alone what one route cannot say.
func (x *startRoute) set() error {
	found, err := netlink.RouteGetWithOptions(x.peer.AsSlice(), &netlink.RouteGetOptions{SrcAddr: x.own.AsSlice(), FIBMatch: true})
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("%d routes", len(found))
	}
	now := found[0]
	if now.Via != nil || now.Encap != nil || len(now.MultiPath) > 0 {
		return errors.New("the route has several next hops, or one of another kind")
	}
	x.route = &netlink.Route{
		Dst: hostNet(x.peer), Src: x.own.AsSlice(), LinkIndex: now.LinkIndex, Gw: now.Gw, Table: startTable(x.own), Protocol: startProtocol,
		InitCwnd: x.window, InitRwnd: startReceive, MTU: now.MTU, AdvMSS: now.AdvMSS,
	}
	if now.Gw == nil {
		x.route.Scope = netlink.SCOPE_LINK
	} else {
		x.route.Flags = int(netlink.FLAG_ONLINK)
	}
	if err := addRule(x.own); err != nil { // somebody may have taken it out
		return err
	}
	return netlink.RouteReplace(x.route)
}

// remove takes the route out. It goes by itself with its link.
func (x *startRoute) remove() { _ = netlink.RouteDel(x.route) }

// startTable is the number of an own address's routing table.
func startTable(own netip.Addr) int {
	h := fnv.New32a()
	_, _ = h.Write(own.AsSlice())
	return startProtocol<<24 | int(h.Sum32()&0xffffff)
}

func startRule(own netip.Addr) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Src, rule.Family = hostNet(own), familyOf(own)
	rule.Table, rule.Priority = startTable(own), startPriority
	return rule
}

func familyOf(a netip.Addr) int {
	if a.Is6() {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// hostNet is the prefix of one address.
func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// expire removes the routes that are no longer wanted.
func (r *startRoutes) expire(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for peer, x := range r.wanted {
		if now.After(x.until) {
			x.remove()
			delete(r.wanted, peer)
		}
	}
}

// close removes everything.
func (r *startRoutes) close() {
	r.expire(time.Now().Add(2 * startWhile))
	r.mu.Lock()
	defer r.mu.Unlock()
	for own := range r.ruled {
		_ = netlink.RuleDel(startRule(own))
	}
	clear(r.ruled)
}
