package network

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/forward"
	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// repairs are requests to bring default forwarding in line with a network that
// has changed. They are done one at a time; requests that come meanwhile are
// done together.
type repairs struct {
	mu   sync.Mutex
	dead map[PortRef]struct{} // ports that lead nowhere any more
	left map[openflow.DatapathID]time.Time
	wake chan struct{} // flows
	base chan struct{} // the broadcast tree
}

// switchLeft notes that a switch has gone just now.
func (r *repairs) switchLeft(d openflow.DatapathID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == nil {
		r.left = map[openflow.DatapathID]time.Time{}
	}
	r.left[d] = time.Now()
}

// awaited reports whether a switch has left so recently that it may only have
// lost its connection for a moment.
func (r *repairs) awaited(d openflow.DatapathID, grace time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.left[d]
	if ok && time.Since(at) >= grace {
		delete(r.left, d)
		ok = false
	}
	return ok
}

// request asks for a repair; at, if not zero, is a port that has died.
func (r *repairs) request(at PortRef) {
	if !at.IsZero() {
		r.mu.Lock()
		if r.dead == nil {
			r.dead = map[PortRef]struct{}{}
		}
		r.dead[at] = struct{}{}
		r.mu.Unlock()
	}
	for _, c := range []chan struct{}{r.wake, r.base} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (r *repairs) take() map[PortRef]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	dead := r.dead
	r.dead = nil
	return dead
}

// runRepairs is the goroutine that repairs flows. It waits for no switch.
func (n *Network) runRepairs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.repairs.wake:
			n.repairFlows(n.repairs.take())
		}
	}
}

// runBase is the goroutine that keeps the broadcast tree. It waits for barriers,
// so one switch that is stuck holds it up.
func (n *Network) runBase(ctx context.Context) {
	var flood rule.Program
	var retry <-chan time.Time
	ready := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.repairs.base:
		case <-retry:
		}
		retry = nil
		if !ready && !n.settled() {
			retry = time.After(n.cfg.DiscoveryInterval / 2)
			continue
		}
		now, again, err := n.repairBase(ctx, flood)
		if err != nil && ctx.Err() == nil {
			n.log.Warn("writing the rules of the broadcast tree", "error", err)
			again = true
		}
		if again {
			retry = time.After(n.cfg.DiscoveryInterval / 2)
		}
		flood = now
		if !ready {
			ready = true
			n.core.Ready()
		}
	}
}

// settled reports whether the links have been found that were there before. Until
// then rules of the broadcast tree from before a restart are left alone, and a
// fresh network floods by way of the controller.
func (n *Network) settled() bool {
	var oldest, youngest time.Duration
	for i, s := range n.Switches() {
		age := time.Since(s.upAt)
		oldest = max(oldest, age)
		if i == 0 || age < youngest {
			youngest = age
		}
	}
	// One switch that comes and goes must not hold up all the others.
	return youngest >= n.settling() || oldest >= 5*n.settling()
}

// settling is how long after a switch has come up its links are taken to be known.
func (n *Network) settling() time.Duration { return n.cfg.DiscoverySettle + 2*n.cfg.DiscoveryInterval }

// repairFlows redirects the flows that have lost their way, and deletes the
// rules of those that have none any more.
func (n *Network) repairFlows(dead map[PortRef]struct{}) {
	replaced, gone := n.flows.Repair(n.view.Load())
	for _, f := range replaced {
		n.install(f, nil)
	}
	for _, k := range gone {
		if old := n.installed.swap(k, nil); old != nil {
			for _, h := range old.Path.Hops {
				n.deleteHop(k, h, nil)
			}
		}
	}
	if n.adopted.Load() {
		n.deleteAdopted(dead)
	}
}

// deleteAdopted deletes flows from before a restart that lead to dead ports or
// to where a host no longer is, along their whole way, so that their packets come
// up again and are forwarded anew.
func (n *Network) deleteAdopted(dead map[PortRef]struct{}) {
	lost := map[forward.Key]struct{}{}
	for _, s := range n.Switches() {
		for _, f := range s.flows.Select(func(f rule.Flow, r ledger.FlowRule) bool {
			_, gone := dead[PortRef{Switch: s.dpid, Port: r.Out}]
			return r.Adopted && (gone || n.misled(s.dpid, f, r.Out))
		}) {
			lost[forward.Key{Src: f.Src, Dst: f.Dst, VLAN: f.VLAN}] = struct{}{}
		}
	}
	if len(lost) == 0 {
		return
	}
	for _, s := range n.Switches() {
		for _, f := range s.flows.Select(func(f rule.Flow, r ledger.FlowRule) bool {
			_, gone := lost[forward.Key{Src: f.Src, Dst: f.Dst, VLAN: f.VLAN}]
			return r.Adopted && gone
		}) {
			n.deleteFlow(s, f, nil)
		}
	}
}

// misled reports whether a rule delivers packets to a port that their destination
// is not behind.
func (n *Network) misled(d openflow.DatapathID, f rule.Flow, out uint32) bool {
	at, known := n.hosts.Lookup(f.Dst, f.VLAN)
	if !known {
		return false
	}
	if out == openflow.PortInPort {
		out = f.InPort
	}
	here := PortRef{Switch: d, Port: out}
	return here != at && (d == at.Switch || n.links.IsEdge(here))
}

// repairBase moves the broadcast rules from the old tree to the present one, by
// way of what both have in common, so that no loop closes in between. again says
// that some switches have still to settle.
func (n *Network) repairBase(ctx context.Context, old rule.Program) (now rule.Program, again bool, err error) {
	if !n.cfg.DisableForwarding {
		now, again = n.keepUnsettled(old, n.view.Load().BaseProgram())
	}
	opts := ApplyOptions{AllowDown: true}
	if len(old.Rules) > 0 {
		if err := n.core.Apply(ctx, keyBase, forward.Shrink(old, now), opts); err != nil {
			return old, again, err
		}
	}
	if err := n.core.Apply(ctx, keyBase, now, opts); err != nil {
		return old, again, err
	}
	return now, again, nil
}

// keepUnsettled leaves the rules of switches as they are whose connection was
// lost a moment ago, or whose links have not been found again since: a lost
// connection must not interrupt what the switch does. It lasts no longer than
// the neighbours' ports take to count as edge ports, or a loop could close.
func (n *Network) keepUnsettled(old, now rule.Program) (kept rule.Program, again bool) {
	up := *n.switches.Load()
	unsettled := map[openflow.DatapathID]bool{}
	keep := func(d openflow.DatapathID) bool {
		u, known := unsettled[d]
		if !known {
			if s := up[d]; s != nil {
				u = time.Since(s.upAt) < n.settling()
			} else {
				u = n.repairs.awaited(d, n.cfg.DiscoveryTimeout)
			}
			unsettled[d] = u
			again = again || u
		}
		return u
	}
	for _, r := range old.Rules {
		if keep(r.Switch) {
			kept.Rules = append(kept.Rules, r)
		}
	}
	for _, r := range now.Rules {
		if !keep(r.Switch) {
			kept.Rules = append(kept.Rules, r)
		}
	}
	return kept, again
}

// keyBase is the core's key for the rules of the broadcast tree, and those by
// which hosts are learned.
const keyBase = "base"

// maintain is the clockwork: probes, repairs, and what ends by time.
func (n *Network) maintain(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { n.runRepairs(ctx) })
	wg.Go(func() { n.runBase(ctx) })
	probe := time.NewTimer(0)
	defer probe.Stop()
	held := time.NewTicker(holdTick)
	defer held.Stop()
	refresh := time.NewTicker(n.cfg.StatsInterval)
	defer refresh.Stop()
	age := time.NewTicker(time.Minute)
	defer age.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.ticks:
			probe.Reset(time.Until(n.probe(time.Now())))
		case <-probe.C:
			probe.Reset(time.Until(n.probe(time.Now())))
		case now := <-held.C:
			n.expireHeld(now)
		case <-refresh.C:
			n.rebuild()
		case now := <-age.C:
			n.hostChanges(n.hosts.Expire(now))
		}
	}
}

// holdTick is how precisely the time of held packets is kept.
const holdTick = 20 * time.Millisecond

// expireHeld forwards packets whose service has not decided in time.
func (n *Network) expireHeld(now time.Time) {
	for s := range maps.Values(*n.switches.Load()) {
		for _, h := range s.held.expired(now) {
			if err := h.Forward(); err != nil {
				s.limiter.warn(n.log, "forwarding a packet held too long", "switch", s.dpid, "error", err)
			}
		}
	}
}
