package network

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/forward"
	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// runRepairs is the goroutine that repairs flows. It waits for no switch.
func (w *forwarding) runRepairs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.repairs.wake:
		}
		began := time.Now()
		w.repairFlows(w.repairs.take())
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
			return r.Adopted && (gone || w.misled(s.dpid, f, r.Out))
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

// misled reports whether a rule delivers packets to a port that their destination
// is not behind.
func (w *forwarding) misled(d openflow.DatapathID, f rule.Flow, out uint32) bool {
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

// deadEnds are the ports of a switch that adopted flows lead to and that are not up.
func deadEnds(s *Switch) []PortRef {
	var out []PortRef
	s.flows.Each(func(_ rule.Flow, r ledger.FlowRule) {
		if p, ok := s.Port(r.Out); r.Adopted && r.Out <= openflow.PortMax && (!ok || !p.Up()) {
			out = append(out, PortRef{Switch: s.dpid, Port: r.Out})
		}
	})
	return out
}
