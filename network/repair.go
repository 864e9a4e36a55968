package network

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
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
	most int           // entries of left at which old ones are taken out
	wake chan struct{} // flows
	base chan struct{} // the broadcast tree
}

// switchLeft notes that a switch has gone just now. What is older than the grace
// of awaited counts no more.
func (r *repairs) switchLeft(d openflow.DatapathID, grace time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == nil {
		r.left = map[openflow.DatapathID]time.Time{}
	}
	if len(r.left) >= r.most {
		maps.DeleteFunc(r.left, func(_ openflow.DatapathID, at time.Time) bool { return time.Since(at) >= grace })
		r.most = 2*len(r.left) + 64
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
		}
		began := time.Now()
		n.repairFlows(n.repairs.take())
		if tasks.Sleep(ctx, repairPause(time.Since(began))) != nil {
			return
		}
	}
}

const (
	// repairShare is how many times as long as it took nothing is repaired again: a repair
	// looks at every flow, and holds up those that decide about new ones. What comes
	// meanwhile is done together.
	repairShare = 4
	// longRepair is the longest that counts: beyond it was waited for a switch, or the
	// machine stood still.
	longRepair = 50 * time.Millisecond
)

// repairPause is for how long nothing is repaired after a repair that took a time, so that
// a port that comes and goes without end costs others a fifth of one processor at most.
func repairPause(took time.Duration) time.Duration { return repairShare * min(took, longRepair) }

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

// maintain is the clockwork: probes, repairs, and what ends by time.
func (n *Network) maintain(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { n.runRepairs(ctx) })
	wg.Go(func() { n.runBase(ctx) })
	wg.Go(func() { n.owners.runLeases(ctx) })
	wg.Go(func() { n.runDoubts(ctx) })
	wg.Go(func() { n.runAmends(ctx) })
	wg.Go(func() { n.runRemember(ctx) })
	wg.Go(func() { n.runTold(ctx) })
	wg.Go(func() { n.runDiagnoses(ctx) })
	probe := time.NewTimer(0)
	defer probe.Stop()
	held := time.NewTicker(holdTick)
	defer held.Stop()
	record := time.NewTimer(n.untilRecord())
	defer record.Stop()
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
		case now := <-record.C:
			n.record(now)
			record.Reset(n.untilRecord())
		case now := <-age.C:
			n.hostChanges(n.hosts.Expire(now))
		}
	}
}

// holdTick is how precisely the time of held packets is kept.
const holdTick = 20 * time.Millisecond

// expireHeld forwards packets whose service has not decided in time.
func (n *Network) expireHeld(now time.Time) {
	for s := range maps.Values(*n.switches.up.Load()) {
		for _, h := range s.held.expired(now) {
			if err := h.Forward(); err != nil {
				s.limiter.Warn(n.log, "forwarding a packet held too long", "switch", s.dpid, "error", err)
			}
		}
	}
}
