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
	// rerouteTimeout bounds how long one new way takes.
	rerouteTimeout = 5 * time.Second
)

// keeper keeps live sessions in step with the network, and with what is promised to them.
type keeper struct {
	*core
	sessions *sessions
	pairs    *pairs
	endings  *endings
	// carrying are the ports that those who promise treatments have been told of; under
	// the lock.
	carrying map[network.Carried]bool
}

// reroute gives every live session whose way has broken, or whose ends have
// moved, rules for a new one.
func (s *keeper) reroute(ctx context.Context) {
	live := s.sessions.live()
	s.retreat(ctx, live)
	defer s.tellCarried()
	widest := map[string]*session{} // for each pair the session that asks for most paths
	for _, ss := range live {
		if ctx.Err() != nil {
			return
		}
		for _, r := range bothRole {
			s.rerouteSide(ctx, ss, r)
		}
		s.endings.endIfLeft(ss)
		if w := widest[ss.pair]; w == nil || w.Tuning.Paths < ss.Tuning.Paths {
			widest[ss.pair] = ss
		}
	}
	for _, ss := range widest {
		s.pairs.reroute(ctx, ss)
	}
}

// rerouteSide recomputes one side of a session if it has to be.
func (s *keeper) rerouteSide(ctx context.Context, ss *session, r agentapi.Role) {
	next, changed := s.nextLayout(ss, r)
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
	if err := s.writeSide(ctx, ss, &next, r, rule.ApplyOptions{}, s.silence(ss, r, &next)...); err != nil {
		s.log.Warn("session keeps its way: the new one could not be written", "session", ss.id, "side", r, "error", err)
		return
	}
	s.mu.Lock()
	*ss.Layout.side(r) = *next.side(r)
	s.mu.Unlock()
	s.metrics.reroutes.Inc()
	s.publish("session.rerouted", map[string]any{"session": ss.id, "side": r, "path": path})
	s.log.Info("session has a new way", "session", ss.id, "side", r, "path", path)
}

// silence are rules that drop what an end host and its agent go on sending where they
// were: whoever is believed to have moved and has not would otherwise speak to the other
// end host itself, in segments that mean nothing there, and be reset.
func (s *keeper) silence(ss *session, r agentapi.Role, next *Layout) []network.Rule {
	s.mu.Lock()
	before := ss.Layout
	s.mu.Unlock()
	was, err := before.rulesOf(r, s.net.CanSet)
	if err != nil || before.side(r).moves() {
		return nil // the switches of then cannot do that any more, and do nothing; or they do as it is
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

// nextLayout is the session's layout with one side brought up to date, and
// whether anything has changed. Without a way there is no change: the old rules
// stay until there is one.
func (s *keeper) nextLayout(ss *session, r agentapi.Role) (Layout, bool) {
	top := s.net.Topology()
	s.mu.Lock()
	defer s.mu.Unlock()
	next := ss.Layout
	side, at := next.side(r), ss.at(r)
	p, known := ss.agent(r).State().Places[side.Agent]
	if !known || len(side.Path) == 0 {
		return next, false
	}
	if side.moves() {
		a := s.anchorOf(ss.endOf(r))
		if a == nil || !side.bring(a, p, top, s.config.metric()) {
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
