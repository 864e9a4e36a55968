package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/service/agents"
	"github.com/sluice-net/sluice/sos/agentapi"
)

const (
	// treatedAtOnce is how many sessions are given another treatment at once.
	treatedAtOnce = 16
	// treatTimeout bounds how long that takes for one.
	treatTimeout = 5 * time.Second
)

// errUnheard says that an agent is not heard.
var errUnheard = errors.New("an agent is silent")

// sent is what is known of the packets of a session's end host, as its interception switch
// sees them.
func (l *Layout) sent(r agentapi.Role) openflow.Match {
	side := l.side(r)
	end, far := l.ends(r)
	more := []openflow.OXM{openflow.InPort(side.Path[0].In), openflow.EthSrc(side.EndMAC)}
	if side.EndVLAN == 0 {
		more = append(more, openflow.NoVLAN())
	}
	if !side.FarMAC.IsZero() {
		more = append(more, openflow.EthDst(side.FarMAC))
	}
	if r == agentapi.RoleClient { // with what the server marks its packets is not known yet
		more = append(more, openflow.IPDSCP(l.DSCP))
	}
	m, err := header{vlan: side.EndVLAN, src: end, dst: far}.match(more...)
	if err != nil {
		return openflow.Match{} // of no packet: addresses of two families
	}
	return m
}

// treat gives the session what is promised to its packets now.
func (l *Layout) treat(of func(openflow.Match) network.Treatment) {
	l.Up, l.Down = of(l.sent(agentapi.RoleClient)), of(l.sent(agentapi.RoleServer))
	if l.Up.Name != "" {
		l.Up.Own = l.DSCP
	}
}

// treated says whether anything is promised to the session's packets.
func (l *Layout) treated() bool { return l.Up.Name != "" || l.Down.Name != "" }

// treatments are those of what a side's end host sends, and of what it is sent.
func (l *Layout) treatments(r agentapi.Role) (sent, seen network.Treatment) {
	return ofRole(r, l.Up, l.Down), ofRole(r, l.Down, l.Up)
}

// marks are the DSCPs with which an agent has to send. In a network between the agents that
// is not ours a treatment's would mean something else.
func (l *Layout) marks(r agentapi.Role) agentapi.Marks {
	sent, seen := l.treatments(r)
	if l.PeersRouted {
		sent.DSCP = 0
	}
	return agentapi.Marks{Peer: sent.DSCP, End: seen.Own}
}

// behind says whether the session may not have what is promised to it as of an epoch. The
// lock is held.
func (ss *session) behind(epoch uint64) bool {
	return ss.epoch != epoch || ss.marks != [2]agentapi.Marks{ss.Layout.marks(bothRole[0]), ss.Layout.marks(bothRole[1])}
}

// carried are the ports by which the packets of a side leave switches under a treatment.
func (l *Layout) carried(r agentapi.Role) (all []network.Carried) {
	add := func(x network.Treatment, path []network.Hop) {
		for _, h := range path {
			if x.Name != "" {
				all = append(all, network.Carried{Treatment: x.Name, At: outPort(h)})
			}
		}
	}
	sent, seen := l.treatments(r)
	side := l.side(r)
	for _, way := range side.ways() {
		add(sent, way)
	}
	if !side.moves() { // to one that moves its own rules lead
		add(seen, service.Reversed(side.Path))
	}
	return all
}

// carriedAnywhere are those of both sides.
func (l *Layout) carriedAnywhere() []network.Carried {
	if !l.treated() {
		return nil
	}
	return append(l.carried(agentapi.RoleClient), l.carried(agentapi.RoleServer)...)
}

// queued has the rules of a side put packets into the queues of their treatments. Each
// matches one connection, so that nothing else gets into them.
func (l *Layout) queued(r agentapi.Role, rules []network.Rule, queue func(network.Carried) uint32) []network.Rule {
	sent, seen := l.treatments(r)
	toEnd := len(rules) / 2
	if l.side(r).moves() {
		toEnd = 1
	}
	for i := range rules {
		x := seen
		if i >= toEnd {
			x = sent
		}
		if outOf(&rules[i]).Port == 0 {
			continue // it ends there, or another table says where it goes
		}
		if q := queue(network.Carried{Treatment: x.Name, At: outOf(&rules[i])}); q != 0 {
			rules[i].Actions = append([]openflow.Action{openflow.SetQueue(q)}, rules[i].Actions...)
		}
	}
	return rules
}

// outOf is the port by which a rule sends packets.
func outOf(r *network.Rule) network.PortRef {
	at := network.PortRef{Switch: r.Switch}
	for _, a := range r.Actions {
		if a.Type == openflow.ActionOutput {
			at.Port = a.Arg
		}
	}
	if at.Port == openflow.PortInPort {
		in, _ := r.Match.Get(openflow.FieldInPort)
		at.Port = uint32(in.Uint())
	}
	return at
}

// retreat gives the live sessions what is promised to them now, and those who promise the
// ports by which they go.
func (s *keeper) retreat(ctx context.Context, live []*session) {
	epoch := s.treatments.Epoch()
	s.mu.Lock()
	behind := slices.DeleteFunc(slices.Clone(live), func(ss *session) bool { return !ss.behind(epoch) })
	s.mu.Unlock()
	tasks.Each(behind, treatedAtOnce, func(ss *session) {
		if err := s.retreatSession(ctx, ss, epoch); err != nil && ctx.Err() == nil {
			s.strange.Warn(s.log, "session keeps the treatment that it had; it is tried again", "session", ss.id, "error", err)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pairs.all {
		p.forgetShares()
	}
}

// retreatSession gives one session what is promised to it, if that is not what it has:
// its rules, its agents, and the way between them.
func (s *keeper) retreatSession(ctx context.Context, ss *session, epoch uint64) error {
	ctx, cancel := context.WithTimeout(ctx, treatTimeout)
	defer cancel()
	ss.changing.Lock()
	defer ss.changing.Unlock()
	heard := ss.client.State().Liveness == agents.Up && ss.server.State().Liveness == agents.Up
	s.mu.Lock()
	next, had, live := ss.Layout, ss.Layout.treated(), ss.state == StateLive
	told := ss.marks
	s.mu.Unlock()
	if !live {
		return nil
	}
	next.treat(s.treatments.Of)
	for i, r := range bothRole {
		if had || next.treated() {
			if err := s.writeSide(ctx, ss, &next, r, rule.ApplyOptions{}, s.quiet(ss, r)...); err != nil {
				return err
			}
		}
		if m := next.marks(r); told[i] != m {
			if !heard {
				return fmt.Errorf("DSCP of what its agents send: %w", errUnheard)
			}
			if err := ss.agent(r).Client.Mark(ctx, ss.id, m); err != nil {
				return err
			}
			told[i] = m
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ss.Layout.Up, ss.Layout.Down, ss.marks, ss.epoch = next.Up, next.Down, told, epoch
	s.pairs.share(ss)
	return nil
}

// quiet are the rules that keep silent who has moved from a side.
func (s *keeper) quiet(ss *session, r agentapi.Role) (quiet []network.Rule) {
	for _, x := range s.rules.Rules(ss.key(r)) {
		if len(x.Actions) == 0 {
			quiet = append(quiet, x.Rule)
		}
	}
	return quiet
}

// tellCarried says by which ports packets of treatments are carried now.
func (s *keeper) tellCarried() {
	all := map[network.Carried]bool{}
	s.mu.Lock()
	for _, ss := range s.sessions.byFlow {
		if ss.state == StateLive {
			for _, c := range ss.Layout.carriedAnywhere() {
				all[c] = true
			}
		}
	}
	s.mu.Unlock()
	for _, c := range s.pairs.carried() {
		all[c] = true
	}
	s.mu.Lock()
	s.carrying = all
	s.mu.Unlock()
	s.treatments.Carry(slices.Collect(maps.Keys(all)))
}

// carriesAnew says whether a session goes by a port, under a treatment, of which nobody
// has been told. The lock is held.
func (s *keeper) carriesAnew(ss *session) bool {
	return ss.Layout.treated() && slices.ContainsFunc(append(ss.Layout.carriedAnywhere(), ss.between...), func(c network.Carried) bool { return !s.carrying[c] })
}
