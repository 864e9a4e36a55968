package plugin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service/control"
	"github.com/sluice-net/sluice/sos/agentapi"
)

const (
	// probeEvery is how often an end host is provoked until it answers.
	probeEvery = 250 * time.Millisecond
	// resetFor is how long an end host is listened to, at most.
	resetFor = 3 * time.Second
	// resetQuiet is how long after its last answer an end host counts as told.
	resetQuiet = 600 * time.Millisecond
)

// reset is an end host whose agent was lost. Its packets come to the
// controller, which answers them with a reset of exactly the sequence number
// that the end host expects; any other would be ignored (RFC 5961).
type reset struct {
	ins      []network.PortRef // where its packets come in
	from, to header            // as the end host sends, and as it must be answered
	answered chan struct{}
}

// aim is where the end host is reached, and by which MAC address: where its packets come
// in or, if it moves, at its own port.
func (s *Service) aim(rs *reset) (network.PortRef, openflow.MAC) {
	a := s.anchorOf(rs.to.dst.Addr())
	switch {
	case a == nil:
		return rs.ins[0], rs.to.ethDst
	case a.Place.MAC.IsZero():
		return a.Place.At, a.MAC
	}
	return a.Place.At, a.Place.MAC
}

// loseSessions ends the sessions of an agent that is gone, with another; nil: all.
func (s *Service) loseSessions(a, with *agent, cause error) {
	lost := s.sessionsOf(a, with)
	if len(lost) > 0 {
		s.log.Warn("sessions end with their agent", "agent", a.Name, "sessions", len(lost), "error", cause)
	}
	for _, ss := range lost {
		s.breakOff(ss, "agent lost: "+a.Name, a)
	}
}

// breakOff ends a session: the agents that are there reset their own ends, and the
// controller that of a lost one.
func (s *Service) breakOff(ss *session, how string, lost *agent) {
	s.mu.Lock()
	mine := ss.state == StateLive
	if mine {
		ss.enter(StateResetting)
		ss.how = how
	}
	s.mu.Unlock()
	if !mine {
		return
	}
	s.start(func(ctx context.Context) {
		bothRoles(func(_ int, r agentapi.Role) error {
			a := ss.agent(r)
			if a == lost {
				s.start(func(ctx context.Context) { s.tell(ctx, a, ss.id) })
			}
			if a == lost || !s.tell(ctx, a, ss.id) {
				s.resetEnd(ctx, ss, r)
			}
			return nil
		})
		s.end(ctx, ss)
	})
}

// maxUntold bounds the sessions that an agent is told of when it is back.
const maxUntold = 4096

// tell has an agent reset its end of a session. It reports false when the agent
// cannot be told; it then is when it is back, lest it waits for its peer.
func (s *Service) tell(ctx context.Context, a *agent, id agentapi.SessionID) bool {
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	err := a.Client.Abort(ctx, id)
	if err == nil || control.CodeOf(err) == control.CodeNotFound {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.untold[a]) < maxUntold {
		s.untold[a] = append(s.untold[a], id)
	}
	return false
}

// tellLate tells an agent that is back what it could not be told.
func (s *Service) tellLate(ctx context.Context, a *agent) {
	s.mu.Lock()
	untold := s.untold[a]
	delete(s.untold, a)
	s.mu.Unlock()
	for _, id := range untold {
		s.tell(ctx, a, id)
	}
}

// resetEnd tells the end host of a lost agent that its connection is over.
func (s *Service) resetEnd(ctx context.Context, ss *session, r agentapi.Role) {
	ctx, cancel := context.WithTimeout(ctx, resetFor)
	defer cancel()
	rs, punts, err := resetOf(ss, r)
	if err == nil {
		s.mu.Lock()
		s.resets[flow{rs.from.src, rs.from.dst}] = rs
		s.mu.Unlock()
		defer s.resetDone(rs)
		ss.changing.Lock()
		err = s.rules.Apply(ctx, ss.key(r), rule.Program{Rules: punts}, rule.ApplyOptions{})
		ss.changing.Unlock()
	}
	if err != nil {
		s.log.Warn("end host cannot be told that its connection is over", "session", ss.id, "end", r, "error", err)
		return
	}
	for {
		s.provoke(rs)
		if heard := await(ctx, rs.answered, probeEvery); heard || ctx.Err() != nil {
			break
		}
	}
	// What it had in flight is answered as well.
	_ = tasks.Sleep(ctx, resetQuiet)
}

func (s *Service) resetDone(rs *reset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.resets, flow{rs.from.src, rs.from.dst})
}

// resetOf describes the end and the rules that bring its packets here. They take the
// place of those that redirected them to the agent.
func resetOf(ss *session, r agentapi.Role) (*reset, []network.Rule, error) {
	side := ss.layout.side(r)
	end, far := ss.layout.ends(r)
	ways := side.Ways
	if !side.moves() {
		ways = [][]network.Hop{side.Path}
	}
	if len(side.Path) == 0 {
		return nil, nil, fmt.Errorf("%v: %w", end, network.ErrNoPath)
	}
	rs := &reset{
		from:     header{vlan: side.EndVLAN, ethSrc: side.EndMAC, ethDst: side.FarMAC, src: end, dst: far},
		to:       header{vlan: side.EndVLAN, ethSrc: side.FarMAC, ethDst: side.EndMAC, src: far, dst: end},
		answered: make(chan struct{}),
	}
	var punts []network.Rule
	for _, way := range ways {
		m, err := rs.from.match(way[0].In)
		if err != nil {
			return nil, nil, fmt.Errorf("switch %v: %w", way[0].Switch, err)
		}
		rs.ins = append(rs.ins, network.PortRef{Switch: way[0].Switch, Port: way[0].In})
		punts = append(punts, network.Rule{
			Switch: way[0].Switch, Stage: network.StageRewrite, Offset: rule.RewriteSession, Match: m,
			Actions: []openflow.Action{openflow.OutputController(wholePacket)},
		})
	}
	return rs, punts, nil
}

// provoke sends the end host two acknowledgements whose sequence numbers are so
// far apart that one lies outside its window, whatever that is. It answers with
// the sequence number that it expects.
func (s *Service) provoke(rs *reset) {
	seq := rand.Uint32()
	at, mac := s.aim(rs)
	for _, n := range []uint32{seq, seq + 1<<31} {
		s.emit(at, packet.AppendTCP(nil, packet.Frame{Dst: mac, Src: rs.to.ethSrc, VLAN: rs.to.vlan}, packet.TCPSegment{
			Src: rs.to.src, Dst: rs.to.dst, Seq: n, Ack: rand.Uint32(), Flags: packet.ACK, Window: 1024,
		}))
	}
}

func (s *Service) emit(at network.PortRef, frame []byte) {
	if err := s.net.Send(at, frame); err != nil {
		s.log.Debug("packet to an end host could not be sent", "at", at, "error", err)
	}
}

// answerReset answers a segment of an end host whose agent was lost.
func (s *Service) answerReset(at network.PortRef, f flow, h *packet.Headers) network.Verdict {
	s.mu.Lock()
	rs := s.resets[f]
	s.mu.Unlock()
	if rs == nil || !slices.Contains(rs.ins, at) {
		return network.Continue
	}
	// An end host that answers with a reset knows already.
	if h.TCPFlags&packet.RST == 0 {
		answer := *h
		var to network.PortRef
		to, answer.EthSrc = s.aim(rs)
		s.emit(to, packet.AppendReset(nil, &answer))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-rs.answered:
	default:
		close(rs.answered)
	}
	return network.Stop
}
