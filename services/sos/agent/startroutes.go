package agent

import (
	"context"
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

	"github.com/sluice-net/sluice/internal/drift"
)

const (
	// startPriority is the priority of the rules that select the agents' routing tables, one for
	// each data address. startProtocol marks the routes in these tables as those of agents.
	startPriority = 7444
	startProtocol = 0x53
	// startRouteLifetime is how long a route stays after it was last requested. A route has an
	// effect only while connections are being established, and the regular route may change later.
	startRouteLifetime = 5 * time.Second
	// startInitRwnd is the number of segments that a receiver advertises at first, as far as its
	// buffers permit.
	startInitRwnd = 12000
	// maxInitCwnd bounds the segments that a sender sends before the first acknowledgement.
	maxInitCwnd = 20000
	// kernelInitCwnd is the kernel's own initial window, in segments (RFC 6928). unknownInitCwnd is
	// that of connections over a path of which nothing is known. A session has two of them, which
	// together send about as much at first as the six connections that a browser opens to a server.
	kernelInitCwnd, unknownInitCwnd = 10, 32
)

// startRoutes installs routes to peers that give new connections an initial window according to
// their path's rate. The routes are in tables of their own, apply only to packets from the agent's
// data addresses, and stay no longer than connections are being established.
type startRoutes struct {
	a *Agent

	mu      sync.Mutex
	hasRule map[netip.Addr]bool // own addresses whose rule is installed
	wanted  map[netip.Addr]*startRoute
}

type startRoute struct {
	own, peer netip.Addr
	via       route
	window    int
	installed time.Time
	until     time.Time
	route     *netlink.Route
}

func newStartRoutes(a *Agent) *startRoutes {
	return &startRoutes{a: a, hasRule: map[netip.Addr]bool{}, wanted: map[netip.Addr]*startRoute{}}
}

// open adds the rule that selects the routing table of an own address, and removes from the table
// the routes of an agent that was killed.
func (r *startRoutes) open(own netip.Addr) error {
	if own.IsLoopback() {
		return nil
	}
	if err := removeStale(familyOf(own), own); err != nil {
		return err
	}
	if _, err := addRule(own); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hasRule[own] = true
	return nil
}

// removeStale removes what agents that were killed have left: the routes of the address own, and
// the rules and routes of addresses that this machine no longer has.
func removeStale(family int, own netip.Addr) error {
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

// removeRoutes removes the routes of agents from a table.
func removeRoutes(family, table int) {
	left, _ := netlink.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE) // the table may not exist
	for _, x := range left {
		if x.Protocol == startProtocol {
			_ = netlink.RouteDel(&x)
		}
	}
}

// addRule adds the rule that selects the routing table of an own address, unless it exists.
func addRule(own netip.Addr) (added bool, err error) {
	switch err := netlink.RuleAdd(startRule(own)); {
	case errors.Is(err, unix.EEXIST):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("rule from %v: %w", own, err)
	}
	return true, nil
}

// things returns the rules of own addresses as things that are kept as declared. The routes are not
// among them: they stay for seconds only, and request installs a route again that is older than
// routeAge.
func (r *startRoutes) things() (all []drift.Thing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for own := range r.hasRule {
		after := drift.Rules
		if own.Is6() {
			after = drift.Rules6
		}
		all = append(all, drift.Thing{
			Name: "rule from " + own.String(), After: []drift.Notification{after},
			Restore: func(context.Context) (int, error) { return restoreRule(own) },
		})
	}
	return all
}

// restoreRule adds the rule of an own address if it is missing, and returns the number of missing
// rules. Existing connections do not notice, because the routes in the table differ from the regular
// ones only in their initial windows.
func restoreRule(own netip.Addr) (missing int, err error) {
	added, err := addRule(own)
	if added {
		missing = 1
	}
	return missing, err
}

// request makes connections to a peer start with a window of the given number of segments, or with
// the kernel's own window if that is larger.
func (r *startRoutes) request(own, peer netip.Addr, via route, window int) {
	own, peer = own.Unmap(), peer.Unmap()
	window = min(max(window, kernelInitCwnd), maxInitCwnd)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.hasRule[own] || own.Is4() != peer.Is4() {
		return
	}
	now := time.Now()
	x := r.wanted[peer]
	if x == nil && len(r.wanted) >= maxPeers {
		return
	}
	if x != nil && x.via == via && x.own == own && now.Sub(x.installed) < routeAge {
		x.until = now.Add(startRouteLifetime)
		if window < x.window*3/4 { // other connections use the route as well
			x.window, x.route.InitCwnd = window, window
			_ = netlink.RouteReplace(x.route)
		}
		return
	}
	if x != nil {
		x.remove() // otherwise the lookup in install would find x instead of the kernel's own route
		delete(r.wanted, peer)
	}
	x = &startRoute{own: own, peer: peer, via: via, window: window, installed: now, until: now.Add(startRouteLifetime)}
	if err := x.install(); err != nil {
		r.a.warnLimit.Warn(r.a.log, "connections with a peer start slowly", "peer", peer, "error", err)
		return
	}
	r.wanted[peer] = x
}

// install writes the route: a copy of the route that the kernel would otherwise use to the peer,
// with the window. It returns an error if that route cannot be expressed as a single route.
func (x *startRoute) install() error {
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
		InitCwnd: x.window, InitRwnd: startInitRwnd, MTU: now.MTU, AdvMSS: now.AdvMSS,
	}
	if now.Gw == nil {
		x.route.Scope = netlink.SCOPE_LINK
	} else {
		x.route.Flags = int(netlink.FLAG_ONLINK)
	}
	return netlink.RouteReplace(x.route)
}

// remove removes the route. If it has gone with its link already, remove has no effect.
func (x *startRoute) remove() { _ = netlink.RouteDel(x.route) }

// startTable returns the number of an own address's routing table.
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

// hostNet returns the prefix of one address.
func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// expire removes the routes that were not requested for startRouteLifetime.
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

// close removes all routes and rules.
func (r *startRoutes) close() {
	r.expire(time.Now().Add(2 * startRouteLifetime))
	r.mu.Lock()
	defer r.mu.Unlock()
	for own := range r.hasRule {
		_ = netlink.RuleDel(startRule(own))
	}
	clear(r.hasRule)
}
