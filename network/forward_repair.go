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
	mu        sync.Mutex
	deadPorts map[PortRef]struct{} // ports that lead nowhere any more
	leftAt    map[openflow.DatapathID]time.Time
	pruneAt   int    // entries of left at which old ones are taken out
	flows     signal // flows
	tree      signal // the broadcast tree
	// paths is for rules by destination.
	paths signal
}

// switchLeft notes that a switch has gone just now. What is older than the grace
// of awaited counts no more.
func (r *repairs) switchLeft(d openflow.DatapathID, grace time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leftAt == nil {
		r.leftAt = map[openflow.DatapathID]time.Time{}
	}
	if len(r.leftAt) >= r.pruneAt {
		maps.DeleteFunc(r.leftAt, func(_ openflow.DatapathID, at time.Time) bool { return time.Since(at) >= grace })
		r.pruneAt = 2*len(r.leftAt) + 64
	}
	r.leftAt[d] = time.Now()
}

// recentlyLeft reports whether a switch has left so recently that it may only have
// lost its connection for a moment.
func (r *repairs) recentlyLeft(d openflow.DatapathID, grace time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.leftAt[d]
	if ok && time.Since(at) >= grace {
		delete(r.leftAt, d)
		ok = false
	}
	return ok
}

// request asks for a repair; at, if not zero, is a port that has died.
func (r *repairs) request(at PortRef) {
	if !at.IsZero() {
		r.mu.Lock()
		if r.deadPorts == nil {
			r.deadPorts = map[PortRef]struct{}{}
		}
		r.deadPorts[at] = struct{}{}
		r.mu.Unlock()
	}
	r.flows.set()
	r.tree.set()
	r.paths.set()
}

func (r *repairs) takeDeadPorts() map[PortRef]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	dead := r.deadPorts
	r.deadPorts = nil
	return dead
}

const (
	// repairPauseFactor is how many times as long as it took nothing is repaired again: a repair
	// looks at every flow, and holds up those that decide about new ones. What comes
	// meanwhile is done together.
	repairPauseFactor = 4
	// maxRepairTime is the longest that counts: beyond it was waited for a switch, or the
	// machine stood still.
	maxRepairTime = 50 * time.Millisecond
)

// repairPause is for how long nothing is repaired after a repair that took a time, so that
// a port that comes and goes without end costs others a fifth of one processor at most.
func repairPause(took time.Duration) time.Duration {
	return repairPauseFactor * min(took, maxRepairTime)
}

// runRepairs is the goroutine that repairs flows. It waits for no switch.
func (w *forwarding) runRepairs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.repairs.flows:
		}
		began := time.Now()
		w.repairFlows(w.repairs.takeDeadPorts())
		if tasks.Sleep(ctx, repairPause(time.Since(began))) != nil {
			return
		}
	}
}

// repairFlows redirects the flows that have lost their way, and deletes the
// rules of those that have none any more.
func (w *forwarding) repairFlows(dead map[PortRef]struct{}) {
	replaced, gone := w.flows.Repair(w.view.Load())
	for _, f := range replaced {
		w.install(f, nil)
	}
	for _, k := range gone {
		if old := w.installed.swap(k, nil); old != nil {
			for _, h := range old.Path.Hops {
				w.deleteHop(k, h, nil)
			}
		}
	}
	if w.adopted.Load() {
		w.deleteAdopted(dead)
	}
}

// deleteAdopted deletes flows from before a restart that lead to dead ports or
// to where a host no longer is, along their whole way, so that their packets come
// up again and are forwarded anew.
func (w *forwarding) deleteAdopted(dead map[PortRef]struct{}) {
	lost := map[forward.Key]struct{}{}
	for _, s := range w.switches.list() {
		for _, f := range s.flows.Select(func(f rule.Flow, r ledger.FlowRule) bool {
			_, gone := dead[PortRef{Switch: s.dpid, Port: r.Out}]
			return r.Adopted && (gone || w.misdirected(s.dpid, f, r.Out))
		}) {
			lost[forward.Key{Src: f.Src, Dst: f.Dst, VLAN: f.VLAN}] = struct{}{}
		}
	}
	if len(lost) == 0 {
		return
	}
	for _, s := range w.switches.list() {
		for _, f := range s.flows.Select(func(f rule.Flow, r ledger.FlowRule) bool {
			_, gone := lost[forward.Key{Src: f.Src, Dst: f.Dst, VLAN: f.VLAN}]
			return r.Adopted && gone
		}) {
			w.deleteFlow(s, f, nil)
		}
	}
}

// misdirected reports whether a rule delivers packets to a port that their destination
// is not behind.
func (w *forwarding) misdirected(d openflow.DatapathID, f rule.Flow, out uint32) bool {
	at, known := w.hosts.Lookup(f.Dst, f.VLAN)
	if !known {
		return false
	}
	if out == openflow.PortInPort {
		out = f.InPort
	}
	here := PortRef{Switch: d, Port: out}
	return here != at && (d == at.Switch || w.links.IsEdge(here))
}

// adopt takes over the rules of default forwarding among those found on a switch, and
// returns the others. Rules of the forwarding owner in any other form are given
// back too, and removed as nobody wants them.
func (w *forwarding) adopt(s *Switch, found []ledger.Reported) []ledger.Reported {
	var others []ledger.Reported
	for i := range found {
		r := &found[i]
		f, fr, ok := r.Flow(s.layout, w.cfg.ForwardIdle)
		if r.Cookie.Owner() == w.hash && ok && s.flows.Adopt(f, fr) {
			w.adopted.Store(true)
			continue
		}
		others = append(others, *r)
	}
	return others
}

// deadPortsOf are the ports of a switch that adopted flows lead to and that are not up.
func deadPortsOf(s *Switch) []PortRef {
	var out []PortRef
	s.flows.Each(func(_ rule.Flow, r ledger.FlowRule) {
		if p, ok := s.Port(r.Out); r.Adopted && r.Out <= openflow.PortMax && (!ok || !p.Up()) {
			out = append(out, PortRef{Switch: s.dpid, Port: r.Out})
		}
	})
	return out
}
