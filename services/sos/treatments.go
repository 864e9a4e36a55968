package sos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

const (
	// treatmentsAtOnce bounds the number of sessions whose treatment is changed at once.
	treatmentsAtOnce = 16
	// treatTimeout bounds the time to change the treatment of one session.
	treatTimeout = 5 * time.Second
)

// errAgentSilent means that an agent does not answer.
var errAgentSilent = errors.New("an agent is silent")

// sentMatch returns a match of the packets that a session's end host sends, as its
// interception switch sees them.
func (l *Layout) sentMatch(r agentapi.Role) openflow.Match {
	side := l.side(r)
	end, far := l.ends(r)
	more := []openflow.OXM{openflow.InPort(side.Path[0].In), openflow.EthSrc(side.EndMAC)}
	if side.EndVLAN == 0 {
		more = append(more, openflow.NoVLAN())
	}
	if !side.FarMAC.IsZero() {
		more = append(more, openflow.EthDst(side.FarMAC))
	}
	if r == agentapi.RoleClient { // the server's DSCP is not known yet
		more = append(more, openflow.IPDSCP(l.DSCP))
	}
	m, err := header{vlan: side.EndVLAN, src: end, dst: far}.match(more...)
	if err != nil {
		return openflow.Match{} // addresses of two families match no packet
	}
	return m
}

// updateTreatments sets the treatments that other services promise to the session's packets now.
func (l *Layout) updateTreatments(of func(openflow.Match) network.Treatment) {
	l.Up, l.Down = of(l.sentMatch(agentapi.RoleClient)), of(l.sentMatch(agentapi.RoleServer))
	if l.Up.Name != "" {
		l.Up.Own = l.DSCP
	}
}

// hasTreatment reports whether any treatment is promised to the session's packets.
func (l *Layout) hasTreatment() bool { return l.Up.Name != "" || l.Down.Name != "" }

// treatments returns the treatment of packets that a side's end host sends, and that of packets
// that it receives.
func (l *Layout) treatments(r agentapi.Role) (sent, seen network.Treatment) {
	return ofRole(r, l.Up, l.Down), ofRole(r, l.Down, l.Up)
}

// marks returns the DSCPs that an agent has to set on the packets that it sends. The server gets
// the DSCP of the client's first packet. The DSCP of the server's packets is known only if they
// have a treatment. If a network that this controller does not manage connects the agents, packets
// between them are not marked, because the DSCP would have another meaning there.
func (l *Layout) marks(r agentapi.Role) agentapi.Marks {
	sent, seen := l.treatments(r)
	if l.PeersRouted {
		sent.DSCP = 0
	}
	if r == agentapi.RoleServer {
		return agentapi.Marks{Peer: sent.DSCP, End: l.DSCP}
	}
	return agentapi.Marks{Peer: sent.DSCP, End: seen.Own}
}

// treatmentOutdated reports whether the session may not have the treatments that are promised in
// the given epoch. The lock is held.
func (ss *session) treatmentOutdated(epoch uint64) bool {
	return ss.epoch != epoch || ss.marks != [2]agentapi.Marks{ss.Layout.marks(roles[0]), ss.Layout.marks(roles[1])}
}

// carriedPorts returns the ports by which the packets of a side leave switches with a treatment.
func (l *Layout) carriedPorts(r agentapi.Role) (all []network.Carried) {
	add := func(x network.Treatment, path []network.Hop) {
		for _, h := range path {
			if x.Name != "" {
				all = append(all, network.Carried{Treatment: x.Name, At: outPort(h)})
			}
		}
	}
	sent, seen := l.treatments(r)
	side := l.side(r)
	for _, path := range side.allPaths() {
		add(sent, path)
	}
	if !side.isMobile() { // packets to a mobile host follow its own rules
		add(seen, kit.Reversed(side.Path))
	}
	return all
}

// allCarriedPorts returns the ports by which the packets of both sides leave switches with a
// treatment.
func (l *Layout) allCarriedPorts() []network.Carried {
	if !l.hasTreatment() {
		return nil
	}
	return append(l.carriedPorts(agentapi.RoleClient), l.carriedPorts(agentapi.RoleServer)...)
}

// withQueues adds the queues of the packets' treatments to the rules of a side. Each rule matches
// one connection, so no other packets get into these queues.
func (l *Layout) withQueues(r agentapi.Role, rules []network.Rule, queue func(network.Carried) uint32) []network.Rule {
	sent, seen := l.treatments(r)
	toEnd := len(rules) / 2
	if l.side(r).isMobile() {
		toEnd = 1
	}
	for i := range rules {
		x := seen
		if i >= toEnd {
			x = sent
		}
		if outputPort(&rules[i]).Port == 0 {
			continue // the rule drops its packets, or another table forwards them
		}
		if q := queue(network.Carried{Treatment: x.Name, At: outputPort(&rules[i])}); q != 0 {
			rules[i].Actions = append([]openflow.Action{openflow.SetQueue(q)}, rules[i].Actions...)
		}
	}
	return rules
}

// outputPort returns the port to which a rule sends packets.
func outputPort(r *network.Rule) network.PortRef {
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

// updateTreatments updates the live sessions whose treatments are outdated.
func (s *reconciler) updateTreatments(ctx context.Context, live []*session) {
	epoch := s.treatments.Epoch()
	s.mu.Lock()
	behind := slices.DeleteFunc(slices.Clone(live), func(ss *session) bool { return !ss.treatmentOutdated(epoch) })
	s.mu.Unlock()
	tasks.Each(behind, treatmentsAtOnce, func(ss *session) {
		if err := s.updateSessionTreatment(ctx, ss, epoch); err != nil && ctx.Err() == nil {
			s.warnLimit.Warn(s.log, "session keeps the treatment that it had; it is tried again", "session", ss.id, "error", err)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pairs.all {
		p.dropUnusedTreatments()
	}
}

// updateSessionTreatment gives one session the treatments that are promised to it now. If they have
// changed, it updates the session's rules, its agents, and the path between them.
func (s *reconciler) updateSessionTreatment(ctx context.Context, ss *session, epoch uint64) error {
	ctx, cancel := context.WithTimeout(ctx, treatTimeout)
	defer cancel()
	ss.changing.Lock()
	defer ss.changing.Unlock()
	up := ss.client.State().Liveness == agents.Up && ss.server.State().Liveness == agents.Up
	s.mu.Lock()
	next, had, live := ss.Layout, ss.Layout.hasTreatment(), ss.state == StateLive
	told := ss.marks
	s.mu.Unlock()
	if !live {
		return nil
	}
	next.updateTreatments(s.treatments.Of)
	for i, r := range roles {
		if had || next.hasTreatment() {
			if err := s.writeSide(ctx, ss, &next, r, rule.ApplyOptions{}, s.currentDropRules(ss, r)...); err != nil {
				return err
			}
		}
		if m := next.marks(r); told[i] != m {
			if !up {
				return fmt.Errorf("DSCP of what its agents send: %w", errAgentSilent)
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
	s.pairs.countTreatments(ss)
	return nil
}

// currentDropRules returns the rules of a side that drop packets that a moved host still sends at
// its old place.
func (s *reconciler) currentDropRules(ss *session, r agentapi.Role) (quiet []network.Rule) {
	for _, x := range s.rules.Rules(ss.key(r)) {
		if len(x.Actions) == 0 {
			quiet = append(quiet, x.Rule)
		}
	}
	return quiet
}

// publishCarried publishes the ports by which packets with treatments leave switches now.
func (s *reconciler) publishCarried() {
	all := map[network.Carried]bool{}
	s.mu.Lock()
	for _, ss := range s.sessions.byFlow {
		if ss.state == StateLive {
			for _, c := range ss.Layout.allCarriedPorts() {
				all[c] = true
			}
		}
	}
	s.mu.Unlock()
	for _, c := range s.pairs.carriedPorts() {
		all[c] = true
	}
	s.mu.Lock()
	s.publishedPorts = all
	s.mu.Unlock()
	s.treatments.Carry(slices.Collect(maps.Keys(all)))
}

// carriesNewPort reports whether a session sends packets with a treatment by a port that
// has not been published. The lock is held.
func (s *reconciler) carriesNewPort(ss *session) bool {
	return ss.Layout.hasTreatment() && slices.ContainsFunc(append(ss.Layout.allCarriedPorts(), ss.carriedBetween...), func(c network.Carried) bool { return !s.publishedPorts[c] })
}
