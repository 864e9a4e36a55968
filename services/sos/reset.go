package sos

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
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

const (
	// firstProbeDelay is the time after which an end host that has not answered is probed again.
	// Its first answer may be lost, because a switch may still have forwarded it by the rule that
	// was replaced. The delay doubles up to maxProbeDelay.
	firstProbeDelay = 50 * time.Millisecond
	maxProbeDelay   = 250 * time.Millisecond
	// resetTimeout bounds how long the controller waits for an end host's packets.
	resetTimeout = 3 * time.Second
	// resetQuietTime is how long the controller continues to answer packets after an end host's
	// first answer.
	resetQuietTime = 600 * time.Millisecond
)

// reset describes an end host whose agent was lost. The switches send its packets to the
// controller, which answers them with a reset of exactly the sequence number that the end host
// expects. The end host would ignore any other reset (RFC 5961).
type reset struct {
	ins      []network.PortRef // the ports at which its packets come in
	from, to header            // headers of packets from the end host, and of the answers to it
	answered chan struct{}
}

// resets holds the end hosts that are being notified that their connections are over.
type resets struct {
	*core
	all map[flow]*reset // by the flow that the end host sends; guarded by the lock
}

// target returns the port by which the end host is reached, and its MAC address there. For a mobile
// host this is the host's own port, and for any other host the port by which its packets come in.
func (s *resets) target(rs *reset) (network.PortRef, openflow.MAC) {
	a := s.anchorOf(rs.to.dst.Addr())
	switch {
	case a == nil:
		return rs.ins[0], rs.to.ethDst
	case a.Place.MAC.IsZero():
		return a.Place.At, a.MAC
	}
	return a.Place.At, a.Place.MAC
}

// notify resets an end host of the session, because the end host may not know that its connection is
// over.
func (s *resets) notify(ctx context.Context, ss *session, r agentapi.Role) {
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
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
	for pause := firstProbeDelay; ; pause = min(2*pause, maxProbeDelay) {
		s.probe(rs, seq)
		seq ^= 1 << 31
		if heard := await(ctx, rs.answered, pause); heard || ctx.Err() != nil {
			break
		}
	}
	// Segments that are still in flight are answered as well.
	_ = tasks.Sleep(ctx, resetQuietTime)
}

// resetOf returns the reset of a side, and the rules that send its end host's packets to the
// controller. They replace the rules that redirected the packets to the agent.
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
	for _, path := range side.allPaths() {
		m, err := rs.from.match(openflow.InPort(path[0].In))
		if err != nil {
			return nil, nil, fmt.Errorf("switch %v: %w", path[0].Switch, err)
		}
		rs.ins = append(rs.ins, inPort(path[0]))
		punts = append(punts, network.Rule{
			Switch: path[0].Switch, Stage: network.StageRewrite, Offset: rule.RewriteSession, Match: m,
			Actions: []openflow.Action{openflow.OutputController(wholePacket)},
		})
	}
	return rs, punts, nil
}

// probe sends the end host a segment with a random sequence number. The number is nearly always
// outside the end host's window, so that the end host answers with the number that it expects (RFC
// 9293, 3.10.7.4). The number of the next probe is as far away from this one as possible. The
// segment contains a byte of data, because Linux answers segments without data only twice a second
// (tcp_invalid_ratelimit), and that answer may be lost. It contains a timestamp, because FreeBSD
// drops segments without one if timestamps have been agreed on.
func (s *resets) probe(rs *reset, seq uint32) {
	at, mac := s.target(rs)
	options := binary.BigEndian.AppendUint64([]byte{1, 1, 8, 10}, rand.Uint64()) // no operation, twice; timestamps (RFC 7323)
	s.send(at, packet.AppendTCP(nil, packet.Frame{Dst: mac, Src: rs.to.ethSrc, VLAN: rs.to.vlan}, packet.TCPSegment{
		Src: rs.to.src, Dst: rs.to.dst, Seq: seq, Ack: rand.Uint32(), Flags: packet.ACK, Window: 1024, Options: options, Payload: []byte{0},
	}))
}

func (s *resets) send(at network.PortRef, frame []byte) {
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
	// An end host that sends a reset knows already that the connection is over.
	if h.TCPFlags&packet.RST == 0 {
		answer := *h
		var to network.PortRef
		to, answer.EthSrc = s.target(rs)
		s.send(to, packet.AppendReset(nil, &answer))
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
