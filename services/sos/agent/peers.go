package agent

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// maxPeers bounds the number of peers that an agent remembers.
const maxPeers = 1024

// peerNote holds the figures of the last session with a peer.
type peerNote struct {
	at     time.Time
	rtt    time.Duration
	loss   float64 // share of segments that were retransmitted
	window int     // credit that was in use
}

// peers remembers paths to peers, so that the next session starts with the right number of
// connections and a window of the right size.
type peers struct {
	mu    sync.Mutex
	notes map[netip.Addr]peerNote
}

func newPeers() *peers { return &peers{notes: make(map[netip.Addr]peerNote)} }

// initialWindow returns the credit for the start of a session with a peer: the credit of the last
// session, if that was recent, but at least first.
func (p *peers) initialWindow(peer netip.Addr, first int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.notes[peer]
	if !ok || time.Since(n.at) > 10*time.Minute {
		return first
	}
	return max(first, n.window)
}

// learn records the figures of a finished session.
func (p *peers) learn(s *session) {
	path := s.congestion.path()
	s.in.mu.Lock()
	size := s.in.window.size
	s.in.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.notes) >= maxPeers {
		for k := range p.notes {
			delete(p.notes, k)
			break
		}
	}
	p.notes[s.req.Peer.Addr] = peerNote{at: time.Now(), rtt: path.rtt, loss: path.loss, window: size}
}

// recall returns the note about a peer, and reports whether there is one.
func (p *peers) recall(peer netip.Addr) (peerNote, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.notes[peer]
	return n, ok
}

// maxRefusals is the number of consecutive connections to the data port that a peer's machine has
// to refuse before its agent counts as dead.
const maxRefusals = 2

// probePeer finds out whether a peer is alive that opens no connections although a session waits
// for them. If the path is down, no answer comes. If the agent has died, its machine refuses
// connections, and the sessions then end at once. Only the accepting side of a session needs this,
// because the dialling side notices when it dials.
func (a *Agent) probePeer(peer agentapi.Peer) {
	if len(peer.DataPorts) == 0 {
		return // the peer's ports are not known
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

// waitingSessions returns the sessions that wait for connections from the peer. If there are none,
// it marks the probing as ended, so that the next waiting session starts it again.
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

// lastHeard returns the time at which the session's peer was last heard, on the agent's clock; 0 if
// it never was.
func (s *session) lastHeard() int64 {
	s.mu.Lock()
	heard := s.heard
	s.mu.Unlock()
	for _, c := range *s.conns.Load() {
		heard = max(heard, c.heard.Load())
	}
	return heard
}

// peersHeard returns, for each peer of a session, the time since the peer was last heard.
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

const (
	// shortSession is the largest session, in bytes, that needs no second connection.
	shortSession = 64 << 10
	// shortInRow is the number of consecutive short sessions of a server after which the next is
	// expected to be short.
	shortInRow = 3
	// maxSizes bounds the number of servers that are remembered.
	maxSizes = 4096
)

// sessionSizes remembers which servers' latest sessions were short. It is safe for
// concurrent use.
type sessionSizes struct {
	mu          sync.Mutex
	consecutive map[netip.AddrPort]int // number of short sessions since the last longer one
}

func newSessionSizes() *sessionSizes { return &sessionSizes{consecutive: map[netip.AddrPort]int{}} }

// record records the number of bytes that a session with a server has carried.
func (z *sessionSizes) record(server netip.AddrPort, bytes uint64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if bytes > shortSession {
		delete(z.consecutive, server)
		return
	}
	if _, ok := z.consecutive[server]; !ok && len(z.consecutive) >= maxSizes {
		clear(z.consecutive)
	}
	z.consecutive[server] = min(z.consecutive[server]+1, shortInRow)
}

// likelyShort reports whether the next session with the server is likely to be short.
func (z *sessionSizes) likelyShort(server netip.AddrPort) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.consecutive[server] >= shortInRow
}
