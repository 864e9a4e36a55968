package agent

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// maxRefusals is how often a peer's machine has to refuse a connection to the data port
// before its agent counts as dead.
const maxRefusals = 2

// probePeer finds out whether a peer is alive that opens no connections although a session
// waits for them. If the path is down, nothing answers; if the agent has died, its machine
// refuses connections, and then the sessions end at once. The dialling side of a session
// finds that out when it dials.
func (a *Agent) probePeer(peer agentapi.Peer) {
	if len(peer.DataPorts) == 0 {
		return // its ports are not known
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.probing[peer.Addr] {
		return
	}
	a.probing[peer.Addr] = true
	a.wg.Go(func() { a.probeUntilDone(peer) })
}

// probeUntilDone probes the peer until no session waits for it any more.
func (a *Agent) probeUntilDone(peer agentapi.Peer) {
	pause := newBackoff(20*time.Millisecond, time.Second)
	for refusals := 0; ; {
		orphans := a.waitingSessions(peer.Addr)
		if len(orphans) == 0 {
			return
		}
		if err := a.probeListener(netip.AddrPortFrom(peer.Addr, peer.DataPorts[0])); errors.Is(err, unix.ECONNREFUSED) {
			refusals++
		} else {
			refusals = 0
		}
		if refusals >= maxRefusals {
			for _, s := range orphans {
				s.finish(agentapi.ReasonPeerLost, "nobody listens on the peer's data port", 0)
			}
		}
		if !pause.wait(a.ctx) {
			return
		}
	}
}

// waitingSessions returns the sessions that wait for connections from the peer. If there
// are none, it ends the search, so that the next waiting session starts another.
func (a *Agent) waitingSessions(peer netip.Addr) []*session {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*session
	for _, s := range a.sessions {
		if s.role == roleAcceptor && s.req.Peer.Addr == peer && s.lastHeard() != 0 && len(*s.conns.Load()) == 0 && s.wantsConns() {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		delete(a.probing, peer)
	}
	return out
}

// probeListener connects to a peer's data port and closes the connection.
func (a *Agent) probeListener(to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(a.ctx, a.cfg.OpeningTimeout)
	defer cancel()
	t, _ := a.transports.byName(a.cfg.Transport)
	c, err := t.Dial(ctx, a.cfg.addrFor(to.Addr()), to, "", 0)
	if err == nil {
		resetNow(c)
	}
	return err
}

// lastHeard returns when the session's peer was last heard, on the agent's clock; 0 if it
// never was.
func (s *session) lastHeard() int64 {
	s.mu.Lock()
	heard := s.heard
	s.mu.Unlock()
	for _, c := range *s.conns.Load() {
		heard = max(heard, c.heard.Load())
	}
	return heard
}

// peersHeard returns how long each peer of a session has been silent.
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
