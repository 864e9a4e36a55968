package plugin

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/sos/agentapi"
)

const (
	// debounce is how long changes of the network are collected before paths are looked
	// at again.
	debounce = 20 * time.Millisecond
	// resyncEvery is how often everything is looked at without a cause.
	resyncEvery = 10 * time.Second
)

// keepUp keeps punt rules, agents' places and sessions' paths in step with the
// network and the clock until ctx ends.
func (s *Service) keepUp(ctx context.Context) {
	next := time.AfterFunc(0, s.wake)
	defer next.Stop()
	s.resync.Run(ctx, debounce, resyncEvery, func(ctx context.Context) {
		s.applyPunts(ctx)
		s.agents.Refresh()
		s.guards.keep(ctx, s.wantedGuards(), network.ApplyOptions{})
		s.reroute(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if at := s.whitelist.NextChange(time.Now()); !at.IsZero() {
			next.Reset(time.Until(at))
		}
	})
}

// reroute gives every live session whose way has broken, or whose ends have
// moved, rules for a new one.
func (s *Service) reroute(ctx context.Context) {
	s.mu.Lock()
	var live []*session
	for _, ss := range s.sessions {
		if ss.state == StateLive {
			live = append(live, ss)
		}
	}
	s.mu.Unlock()
	s.retreat(ctx, live)
	defer s.tellCarried()
	pairs := map[string]*session{} // for each pair the session that asks for most paths
	for _, ss := range live {
		if ctx.Err() != nil {
			return
		}
		for _, r := range bothRole {
			s.rerouteSide(ctx, ss, r)
		}
		s.endIfLeft(ss)
		if w := pairs[ss.pair]; w == nil || w.tuning.Paths < ss.tuning.Paths {
			pairs[ss.pair] = ss
		}
	}
	for _, ss := range pairs {
		s.reroutePair(ctx, ss)
	}
}

// rerouteSide recomputes one side of a session if it has to be.
func (s *Service) rerouteSide(ctx context.Context, ss *session, r agentapi.Role) {
	next, changed := s.nextLayout(ss, r)
	if !changed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rules, err := s.rulesOf(&next, r)
	if err == nil {
		ss.changing.Lock()
		defer ss.changing.Unlock()
		s.mu.Lock()
		live := ss.state == StateLive
		s.mu.Unlock()
		if !live {
			return
		}
		rules = append(rules, s.silence(ss, r, rules)...)
		err = s.rules.Apply(ctx, ss.key(r), rule.Program{Rules: rules}, rule.ApplyOptions{})
	}
	if err != nil {
		s.log.Warn("session keeps its way: the new one could not be written", "session", ss.id, "side", r, "error", err)
		return
	}
	s.mu.Lock()
	*ss.layout.side(r) = *next.side(r)
	s.mu.Unlock()
	s.metrics.reroutes.Inc()
	s.publish("session.rerouted", map[string]any{"session": ss.id, "side": r, "path": hops(next.side(r).Path)})
	s.log.Info("session has a new way", "session", ss.id, "side", r, "path", hops(next.side(r).Path))
}

// silence are rules that drop what an end host and its agent go on sending where they
// were: whoever is believed to have moved and has not would otherwise speak to the other
// end host itself, in segments that mean nothing there, and be reset.
func (s *Service) silence(ss *session, r agentapi.Role, next []network.Rule) []network.Rule {
	s.mu.Lock()
	before := ss.layout
	s.mu.Unlock()
	was, err := before.rulesOf(r, s.net.CanSet)
	if err != nil || before.side(r).moves() {
		return nil // the switches of then cannot do that any more, and do nothing; or they do as it is
	}
	var drops []network.Rule
	for _, entry := range []network.Rule{was[len(was)/2-1], was[len(was)-1]} {
		taken := slices.ContainsFunc(next, func(x network.Rule) bool { return x.Switch == entry.Switch && x.Key() == entry.Key() })
		if entry.Actions = nil; !taken {
			drops = append(drops, entry)
		}
	}
	return drops
}

// nextLayout is the session's layout with one side brought up to date, and
// whether anything has changed. Without a way there is no change: the old rules
// stay until there is one.
func (s *Service) nextLayout(ss *session, r agentapi.Role) (Layout, bool) {
	top := s.net.Topology()
	s.mu.Lock()
	defer s.mu.Unlock()
	next := ss.layout
	side := next.side(r)
	if side.moves() {
		p, known := ss.agent(r).State().Places[side.Agent]
		a := s.anchorOf(ss.endOf(r))
		if !known || a == nil || !side.bring(a, p, top, s.config.metric()) {
			return ss.layout, false
		}
		side.PuntsSYN = r == agentapi.RoleClient && s.puntsSYN(side)
		return next, true
	}
	at := &ss.clientAt
	if r == agentapi.RoleServer {
		at = &ss.serverAt
	}
	from := *at
	if h, ok := s.net.HostByMAC(side.EndMAC, side.EndVLAN); ok {
		from = h.At
	}
	a := ss.agent(r)
	p, known := a.State().Places[side.Agent]
	if !known || len(side.Path) == 0 {
		return next, false
	}
	first, last := side.Path[0], side.Path[len(side.Path)-1]
	here := network.PortRef{Switch: first.Switch, Port: first.In} == from
	there := network.PortRef{Switch: last.Switch, Port: last.Out} == p.At
	if here && there && p.MAC == side.AgentMAC && p.VLAN == side.AgentVLAN && valid(top, [][]network.Hop{side.Path}) {
		return next, false
	}
	path, ok := top.Path(from, p.At, s.config.metric())
	if !ok {
		return next, false
	}
	side.Path, side.AgentMAC, side.AgentVLAN = path.Hops, p.MAC, p.VLAN
	side.PuntsSYN = r == agentapi.RoleClient && s.seesTCPFlags(from.Switch)
	*at = from
	return next, !reflect.DeepEqual(*ss.layout.side(r), *side)
}

// reroutePair recomputes the way between a session's agents if it has to be.
func (s *Service) reroutePair(ctx context.Context, ss *session) {
	s.mu.Lock()
	p := s.pairs[ss.pair]
	s.mu.Unlock()
	if p == nil {
		return
	}
	p.mu.Lock()
	was := p.steering
	p.mu.Unlock()
	want, err := s.steeringOf(ss)
	if err != nil || len(want.Paths) == 0 && len(was.Paths) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := s.applyPair(ctx, p, want); err != nil {
		s.log.Warn("agents keep their way: the new one could not be written", "pair", p.key, "error", err)
		return
	}
	p.mu.Lock()
	now := p.steering
	p.mu.Unlock()
	if !slices.EqualFunc(was.Paths, now.Paths, slices.Equal[[]network.Hop]) {
		s.metrics.reroutes.Inc()
		s.notePaths(ss, now)
		s.publish("agents.rerouted", map[string]any{"pair": p.key})
		s.log.Info("agents have a new way", "pair", p.key, "paths", len(now.Paths))
	}
}
