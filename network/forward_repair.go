package network

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/forward"
	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// repairs collects requests to adapt default forwarding to a changed network. They are executed
// one at a time; requests that arrive meanwhile are executed together.
type repairs struct {
	mu        sync.Mutex
	deadPorts map[PortRef]struct{} // ports that are down or have lost their link
	// leftAt holds the times at which switches disconnected.
	leftAt  map[openflow.DatapathID]time.Time
	pruneAt int    // size of leftAt at which old entries are dropped
	flows   signal // wakes the repair of flows
	tree    signal // wakes the repair of the broadcast tree
	// paths wakes the repair of rules by destination.
	paths signal
}

// switchLeft records that a switch has disconnected just now, and drops entries that are older
// than grace.
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

// recentlyLeft reports whether a switch has disconnected so recently that the connection may be
// lost only for a moment.
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

// request requests a repair. If at is not zero, it is a port that has died.
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

// takeDeadPorts removes and returns the recorded dead ports.
func (r *repairs) takeDeadPorts() map[PortRef]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	dead := r.deadPorts
	r.deadPorts = nil
	return dead
}

const (
	// repairPauseFactor is the ratio of the pause after a repair to the repair's duration. A
	// repair visits every flow, and delays decisions about new flows, so requests are collected
	// during the pause.
	repairPauseFactor = 4
	// maxRepairTime is the longest duration that counts for the pause: what takes longer has
	// waited for a switch, or the machine was stalled.
	maxRepairTime = 50 * time.Millisecond
)

// repairPause returns the pause after a repair, so that a port that goes up and down without end
// costs others at most a fifth of one processor.
func repairPause(took time.Duration) time.Duration {
	return repairPauseFactor * min(took, maxRepairTime)
}

// runRepairs repairs flows until ctx ends. It does not wait for switches.
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

// repairFlows moves the flows whose path is broken, and deletes the rules of those that have no
// path.
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

// deleteAdopted deletes flows from before a restart that lead to dead ports or to a host's former
// place. It deletes them along their whole path, so that their packets reach the controller and
// are decided anew.
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

// misdirected reports whether a rule delivers packets to a port behind which their destination is
// not.
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

// adopt takes over the rules of default forwarding among those found on a switch, and returns all
// other rules. The returned rules include those with default forwarding's cookie that have another
// form; they are removed later, because nobody declares them.
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

// compare compares the rules of default forwarding that a switch has listed with the flows that it
// should have, and returns all other rules. It deletes rules that belong to no flow or differ from
// their flow. The next packet of a flow that has no rule, or had a wrong one, is decided anew. A
// missing rule is not reported as a deviation, because it may have expired.
func (w *forwarding) compare(s *Switch, found []ledger.Reported, watch *ledger.FlowWatch) ([]ledger.Reported, Deviation) {
	var others []ledger.Reported
	var flows []ledger.FoundFlow
	for i := range found {
		r := &found[i]
		f, fr, ok := r.Flow(s.layout, w.cfg.ForwardIdle)
		if ok && r.Cookie.Owner() == w.hash {
			flows = append(flows, ledger.FoundFlow{Flow: f, FlowRule: fr})
		} else {
			others = append(others, *r)
		}
	}
	missing, changed, foreign := s.flows.Compare(watch, flows)
	for _, f := range missing {
		w.decideAnew(f)
	}
	for _, f := range changed {
		w.decideAnew(f.Flow)
	}
	foreign = foreign[:min(len(foreign), maxForeignFlows)]
	for _, f := range slices.Concat(changed, foreign) {
		w.sendDelete(s, f.Flow, f.Cookie)
	}
	s.ch.out.flush()
	return others, Deviation{Owner: ownerForward, Object: ledger.ObjectRule, Changed: len(changed), Foreign: len(foreign)}
}

// maxForeignFlows is the number of unwanted rules of default forwarding that one comparison
// deletes.
const maxForeignFlows = 4096

// sendDelete queues the deletion of a rule in the switch. The rule's flow is not in s.flows, or was
// just removed from it.
func (w *forwarding) sendDelete(s *Switch, f rule.Flow, c rule.Cookie) {
	b := w.writer.AppendDelete(s.ch.out.lockControl(), s.ch.xid.Add(1), s.layout, c, f)
	s.ch.out.unlockControl(b)
	s.ch.flowMods.Add(1)
}

// deadPortsOf returns the ports of a switch that adopted flows lead to and that are not up.
func deadPortsOf(s *Switch) []PortRef {
	var out []PortRef
	s.flows.Each(func(_ rule.Flow, r ledger.FlowRule) {
		if p, ok := s.Port(r.Out); r.Adopted && r.Out <= openflow.PortMax && (!ok || !p.Up()) {
			out = append(out, PortRef{Switch: s.dpid, Port: r.Out})
		}
	})
	return out
}
