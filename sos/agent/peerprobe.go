package agent

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/service/control"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// seekRefusals is how often a peer's machine has to say that nobody listens there
// before its agent counts as dead.
const seekRefusals = 2

// seek finds out whether a peer is alive that opens no connections any more,
// though a session waits for them. A path that is down answers nothing; the
// machine of an agent that has died refuses, and then the sessions are over at
// once. The dialling side of a session finds the same out as it dials.
func (a *Agent) seek(peer agentapi.Peer) {
	if len(peer.DataPorts) == 0 {
		return // nobody has said where it listens
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.seeking[peer.Addr] {
		return
	}
	a.seeking[peer.Addr] = true
	a.wg.Go(func() { a.seekUntilFound(peer) })
}

// seekUntilFound asks until no session waits for the peer any more.
func (a *Agent) seekUntilFound(peer agentapi.Peer) {
	pause := newBackoff(20*time.Millisecond, time.Second)
	for refusals := 0; ; {
		orphans := a.orphans(peer.Addr)
		if len(orphans) == 0 {
			return
		}
		if err := a.knock(netip.AddrPortFrom(peer.Addr, peer.DataPorts[0])); errors.Is(err, unix.ECONNREFUSED) {
			refusals++
		} else {
			refusals = 0
		}
		if refusals >= seekRefusals {
			for _, s := range orphans {
				s.finish(agentapi.ReasonPeerLost, "nobody listens on the peer's data port", 0)
			}
		}
		if !pause.wait(a.ctx) {
			return
		}
	}
}

// orphans are the sessions that wait for connections from the peer. When there
// are none, the search is over: the next orphan starts another.
func (a *Agent) orphans(peer netip.Addr) []*session {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*session
	for _, s := range a.sessions {
		if s.role == roleAcceptor && s.req.Peer.Addr == peer && s.lastHeard() != 0 && len(*s.conns.Load()) == 0 && s.live() {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		delete(a.seeking, peer)
	}
	return out
}

// knock connects to a peer's data port and leaves again.
func (a *Agent) knock(to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(a.ctx, a.cfg.OpeningTimeout)
	defer cancel()
	t, _ := a.transports.byName(a.cfg.Transport)
	c, err := t.Dial(ctx, a.cfg.addrFor(to.Addr()), to, "", 0)
	if err == nil {
		resetNow(c)
	}
	return err
}

// lastHeard is when the session's peer was last heard, on the agent's clock; 0
// before the first time.
func (s *session) lastHeard() int64 {
	s.mu.Lock()
	heard := s.heard
	s.mu.Unlock()
	for _, c := range *s.conns.Load() {
		heard = max(heard, c.heard.Load())
	}
	return heard
}

// peersHeard says how long each peer of a session has been silent.
func (a *Agent) peersHeard() []control.PeerStatus {
	last := map[netip.Addr]int64{}
	for _, s := range a.list() {
		if heard := s.lastHeard(); heard != 0 {
			last[s.req.Peer.Addr] = max(last[s.req.Peer.Addr], heard)
		}
	}
	now := a.now()
	out := make([]control.PeerStatus, 0, len(last))
	for addr, heard := range last {
		out = append(out, control.PeerStatus{Addr: addr, Silence: agentapi.Duration(now - heard)})
	}
	return out
}
