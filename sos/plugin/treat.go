package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
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
	side, from, to := l.side(r), l.Client, l.Server
	if r == agentapi.RoleServer {
		from, to = to, from
	}
	fields := []openflow.OXM{
		openflow.InPort(side.Path[0].In), openflow.EthSrc(side.EndMAC), openflow.EthType(etherType(from.Addr())), openflow.IPProto(protoTCP),
		openflow.IPSrc(from.Addr()), openflow.IPDst(to.Addr()), openflow.TCPSrc(from.Port()), openflow.TCPDst(to.Port()), openflow.NoVLAN(),
	}
	if side.EndVLAN != 0 {
		fields[len(fields)-1] = openflow.VLANVID(side.EndVLAN)
	}
	if !side.FarMAC.IsZero() {
		fields = append(fields, openflow.EthDst(side.FarMAC))
	}
	if r == agentapi.RoleClient { // with what the server marks its packets is not known yet
		fields = append(fields, openflow.IPDSCP(l.DSCP))
	}
	m, err := openflow.NewMatch(fields...)
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
	if r == agentapi.RoleClient {
		return l.Up, l.Down
	}
	return l.Down, l.Up
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
	return ss.epoch != epoch || ss.marks != [2]agentapi.Marks{ss.layout.marks(bothRole[0]), ss.layout.marks(bothRole[1])}
}

// carried are the ports by which the packets of a side leave switches under a treatment.
func (l *Layout) carried(r agentapi.Role) (all []network.Carried) {
	add := func(x network.Treatment, path []network.Hop) {
		for _, h := range path {
			if x.Name != "" {
				all = append(all, network.Carried{Treatment: x.Name, At: network.PortRef{Switch: h.Switch, Port: h.Out}})
			}
		}
	}
	sent, seen := l.treatments(r)
	side := l.side(r)
	if !side.moves() {
		add(sent, side.Path)
		add(seen, reversed(side.Path))
	}
	for _, way := range side.Ways { // to the end host its own rules lead
		add(sent, way)
	}
	return all
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

// rulesOf are those of one side of a session, with the queues of what is promised to it.
func (s *Service) rulesOf(l *Layout, r agentapi.Role) ([]network.Rule, error) {
	rules, err := l.rulesOf(r, s.net.CanSet)
	if err != nil {
		return nil, err
	}
	return l.queued(r, rules, s.treatments.Queue), nil
}

// awaitTreatments waits until what is promised is known after a start, but not for ever.
func (s *Service) awaitTreatments(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Settle)
	defer cancel()
	s.treatments.Await(ctx)
}

// retreat gives the live sessions what is promised to them now, and those who promise the
// ports by which they go.
func (s *Service) retreat(ctx context.Context, live []*session) {
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
	for _, p := range s.pairs {
		p.forgetShares()
	}
}

// retreatSession gives one session what is promised to it, if that is not what it has:
// its rules, its agents, and the way between them.
func (s *Service) retreatSession(ctx context.Context, ss *session, epoch uint64) error {
	ctx, cancel := context.WithTimeout(ctx, treatTimeout)
	defer cancel()
	ss.changing.Lock()
	defer ss.changing.Unlock()
	heard := ss.client.State().Liveness == agents.Up && ss.server.State().Liveness == agents.Up
	s.mu.Lock()
	next, had, live := ss.layout, ss.layout.treated(), ss.state == StateLive
	told := ss.marks
	s.mu.Unlock()
	next.treat(s.treatments.Of)
	for i, r := range bothRole {
		if !live {
			return nil
		}
		if had || next.treated() {
			if err := s.rewriteSide(ctx, ss, &next, r); err != nil {
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
	ss.layout.Up, ss.layout.Down, ss.marks, ss.epoch = next.Up, next.Down, told, epoch
	s.sharePair(ss)
	return nil
}

// rewriteSide writes the rules of a side anew. Those that keep silent who has moved stay.
func (s *Service) rewriteSide(ctx context.Context, ss *session, l *Layout, r agentapi.Role) error {
	rules, err := s.rulesOf(l, r)
	if err != nil {
		return err
	}
	for _, x := range s.rules.Rules(ss.key(r)) {
		if len(x.Actions) == 0 {
			rules = append(rules, x.Rule)
		}
	}
	return s.rules.Apply(ctx, ss.key(r), rule.Program{Rules: rules}, rule.ApplyOptions{})
}

// tellCarried says by which ports packets of treatments are carried now.
func (s *Service) tellCarried() {
	all := map[network.Carried]bool{}
	s.mu.Lock()
	for _, ss := range s.sessions {
		for _, r := range bothRole {
			if ss.state == StateLive && ss.layout.treated() {
				for _, c := range ss.layout.carried(r) {
					all[c] = true
				}
			}
		}
	}
	shared := map[*pair][]shared{}
	for _, p := range s.pairs {
		if p.users > 0 {
			shared[p] = p.sorted()
		}
	}
	s.mu.Unlock()
	for p, treated := range shared {
		p.mu.Lock()
		for _, x := range treated {
			for _, c := range p.steering.carried(x) {
				all[c] = true
			}
		}
		p.mu.Unlock()
	}
	list := make([]network.Carried, 0, len(all))
	for c := range all {
		list = append(list, c)
	}
	s.mu.Lock()
	s.carrying = all
	s.mu.Unlock()
	s.treatments.Carry(list)
}

// carriesAnew says whether a session goes by a port, under a treatment, of which nobody
// has been told. The lock is held.
func (s *Service) carriesAnew(ss *session) bool {
	news := func(c network.Carried) bool { return !s.carrying[c] }
	if !ss.layout.treated() {
		return false
	}
	for _, r := range bothRole {
		if slices.ContainsFunc(ss.layout.carried(r), news) {
			return true
		}
	}
	return slices.ContainsFunc(ss.between, news)
}
