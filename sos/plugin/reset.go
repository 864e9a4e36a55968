package plugin

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/sos/agentapi"
)

const (
	// firstProbe is how soon an end host that has not answered is provoked again: a switch
	// may still have forwarded its first answer by the rule that was replaced. The time doubles
	// up to probeEvery.
	firstProbe = 50 * time.Millisecond
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

// resets are the end hosts that are being told that their connections are over.
type resets struct {
	*core
	all map[flow]*reset // by what the end host sends; under the lock
}

// aim is where the end host is reached, and by which MAC address: where its packets come
// in or, if it moves, at its own port.
func (s *resets) aim(rs *reset) (network.PortRef, openflow.MAC) {
	a := s.anchorOf(rs.to.dst.Addr())
	switch {
	case a == nil:
		return rs.ins[0], rs.to.ethDst
	case a.Place.MAC.IsZero():
		return a.Place.At, a.MAC
	}
	return a.Place.At, a.Place.MAC
}

// end tells the end host of a lost agent that its connection is over.
func (s *resets) end(ctx context.Context, ss *session, r agentapi.Role) {
	ctx, cancel := context.WithTimeout(ctx, resetFor)
	defer cancel()
	rs, punts, err := resetOf(ss, r)
	if err == nil {
		sends := flow{rs.from.src, rs.from.dst}
		s.mu.Lock()
		s.all[sends] = rs
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.all, sends)
		}()
		ss.changing.Lock()
		err = s.rules.Apply(ctx, ss.key(r), rule.Program{Rules: punts}, rule.ApplyOptions{})
		ss.changing.Unlock()
	}
	if err != nil {
		s.log.Warn("end host cannot be told that its connection is over", "session", ss.id, "end", r, "error", err)
		return
	}
	seq := rand.Uint32()
	for pause := firstProbe; ; pause = min(2*pause, probeEvery) {
		s.provoke(rs, seq)
		seq ^= 1 << 31
		if heard := await(ctx, rs.answered, pause); heard || ctx.Err() != nil {
			break
		}
	}
	// What it had in flight is answered as well.
	_ = tasks.Sleep(ctx, resetQuiet)
}

// resetOf describes the end and the rules that bring its packets here. They take the
// place of those that redirected them to the agent.
func resetOf(ss *session, r agentapi.Role) (*reset, []network.Rule, error) {
	side := ss.Layout.side(r)
	end, far := ss.Layout.ends(r)
	if len(side.Path) == 0 {
		return nil, nil, fmt.Errorf("%v: %w", end, network.ErrNoPath)
	}
	rs := &reset{
		from:     header{vlan: side.EndVLAN, ethSrc: side.EndMAC, ethDst: side.FarMAC, src: end, dst: far},
		to:       header{vlan: side.EndVLAN, ethSrc: side.FarMAC, ethDst: side.EndMAC, src: far, dst: end},
		answered: make(chan struct{}),
	}
	var punts []network.Rule
	for _, way := range side.ways() {
		m, err := rs.from.match(openflow.InPort(way[0].In))
		if err != nil {
			return nil, nil, fmt.Errorf("switch %v: %w", way[0].Switch, err)
		}
		rs.ins = append(rs.ins, inPort(way[0]))
		punts = append(punts, network.Rule{
			Switch: way[0].Switch, Stage: network.StageRewrite, Offset: rule.RewriteSession, Match: m,
			Actions: []openflow.Action{openflow.OutputController(wholePacket)},
		})
	}
	return rs, punts, nil
}

// provoke sends the end host a segment with a sequence number of chance: nearly always one outside its window. It
// answers with the one that it expects (RFC 9293, 3.10.7.4). The next time that number is as far away as can be. It holds a
// byte, because Linux answers those without data only twice a second (tcp_invalid_ratelimit), and that answer may be
// lost; and a timestamp, without which FreeBSD drops it where timestamps have been agreed on.
func (s *resets) provoke(rs *reset, seq uint32) {
	at, mac := s.aim(rs)
	options := binary.BigEndian.AppendUint64([]byte{1, 1, 8, 10}, rand.Uint64()) // no operation, twice; timestamps (RFC 7323)
	s.emit(at, packet.AppendTCP(nil, packet.Frame{Dst: mac, Src: rs.to.ethSrc, VLAN: rs.to.vlan}, packet.TCPSegment{
		Src: rs.to.src, Dst: rs.to.dst, Seq: seq, Ack: rand.Uint32(), Flags: packet.ACK, Window: 1024, Options: options, Payload: []byte{0},
	}))
}

func (s *resets) emit(at network.PortRef, frame []byte) {
	if err := s.net.Send(at, frame); err != nil {
		s.log.Debug("packet to an end host could not be sent", "at", at, "error", err)
	}
}

// answer answers a segment of an end host whose agent was lost.
func (s *resets) answer(at network.PortRef, f flow, h *packet.Headers) network.Verdict {
	s.mu.Lock()
	rs := s.all[f]
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
