package sos

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

const (
	// debounce is how long changes of the network are collected before paths are checked
	// again.
	debounce = 20 * time.Millisecond
	// resyncEvery is the interval at which everything is checked even if no change was reported.
	resyncEvery = 10 * time.Second
)

// reconciler keeps live sessions up to date with the network and with the treatments
// promised to them.
type reconciler struct {
	*core
	sessions *sessions
	pairs    *pairs
	endings  *endings
	// publishedPorts holds the ports that were last published to the services that promise
	// treatments; guarded by the lock.
	publishedPorts map[network.Carried]bool
}

// reroute writes new rules for every live session whose path is broken or whose ends have
// moved.
func (s *reconciler) reroute(ctx context.Context) {
	live := s.sessions.live()
	s.updateTreatments(ctx, live)
	defer s.publishCarried()
	widest := map[string]*session{} // by pair, the session that asks for the most paths
	for _, ss := range live {
		if ctx.Err() != nil {
			return
		}
		for _, r := range roles {
			s.rerouteSide(ctx, ss, r)
		}
		s.endings.endIfHostLeft(ss)
		if w := widest[ss.pair]; w == nil || w.Tuning.Paths < ss.Tuning.Paths {
			widest[ss.pair] = ss
		}
	}
	for _, ss := range widest {
		s.pairs.reroute(ctx, ss)
	}
}

// rerouteSide recomputes one side of a session, and rewrites its rules if they have changed.
func (s *reconciler) rerouteSide(ctx context.Context, ss *session, r agentapi.Role) {
	next, changed := s.updatedLayout(ss, r)
	if !changed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, rerouteTimeout)
	defer cancel()
	ss.changing.Lock()
	defer ss.changing.Unlock()
	if !s.isLive(ss) {
		return
	}
	path := hops(next.side(r).Path)
	if err := s.writeSide(ctx, ss, &next, r, rule.ApplyOptions{}, s.dropRules(ss, r, &next)...); err != nil {
		s.log.Warn("session keeps its path: rules for the new one could not be written", "session", ss.id, "side", r, "error", err)
		return
	}
	s.mu.Lock()
	*ss.Layout.side(r) = *next.side(r)
	s.mu.Unlock()
	s.metrics.reroutes.Inc()
	s.publish("session.rerouted", map[string]any{"session": ss.id, "side": r, "path": path})
	s.log.Info("session has a new path", "session", ss.id, "side", r, "path", path)
}

// dropRules returns rules that drop packets that an end host and its agent still send at their old
// places. Without these rules, a host that is wrongly believed to have moved would reach the other
// end host itself, with segments that belong to no connection there, and be reset.
func (s *reconciler) dropRules(ss *session, r agentapi.Role, next *Layout) []network.Rule {
	s.mu.Lock()
	before := ss.Layout
	s.mu.Unlock()
	was, err := before.rulesOf(r, s.net.CanSet)
	if err != nil || before.side(r).isMobile() {
		return nil // the old switches forward nothing any more, or a mobile host's rules drop such packets
	}
	rules, err := next.rulesOf(r, s.net.CanSet)
	if err != nil {
		return nil // nothing will be written
	}
	var drops []network.Rule
	for _, entry := range []network.Rule{was[len(was)/2-1], was[len(was)-1]} {
		taken := slices.ContainsFunc(rules, func(x network.Rule) bool { return x.Switch == entry.Switch && x.Key() == entry.Key() })
		if entry.Actions = nil; !taken {
			drops = append(drops, entry)
		}
	}
	return drops
}

// updatedLayout returns the session's layout with one side brought up to date, and reports whether
// that side has changed. If there is no path, the layout does not change, and the old rules stay
// until there is one.
func (s *reconciler) updatedLayout(ss *session, r agentapi.Role) (Layout, bool) {
	top := s.net.Topology()
	s.mu.Lock()
	defer s.mu.Unlock()
	next := ss.Layout
	side, at := next.side(r), ss.at(r)
	p, known := ss.agent(r).State().Places[side.Agent]
	if !known || len(side.Path) == 0 {
		return next, false
	}
	if side.isMobile() {
		a := s.anchorOf(ss.endAddr(r))
		if a == nil || !side.refreshPaths(a, p, top, s.config.metric()) {
			return ss.Layout, false
		}
		side.PuntsSYN = r == agentapi.RoleClient && s.puntsSYN(side)
		return next, true
	}
	from := *at
	if h, ok := s.net.HostByMAC(side.EndMAC, side.EndVLAN); ok {
		from = h.At
	}
	stays := inPort(side.Path[0]) == from && side.agentAt() == p.At && p.MAC == side.AgentMAC && p.VLAN == side.AgentVLAN
	if stays && valid(top, [][]network.Hop{side.Path}) {
		return next, false
	}
	path, ok := top.Path(from, p.At, s.config.metric())
	if !ok {
		return next, false
	}
	side.Path, side.AgentMAC, side.AgentVLAN = path.Hops, p.MAC, p.VLAN
	side.PuntsSYN = r == agentapi.RoleClient && s.puntsSYN(side)
	*at = from
	return next, !reflect.DeepEqual(*ss.Layout.side(r), *side)
}
