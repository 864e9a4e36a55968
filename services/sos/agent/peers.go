package agent

import (
	"net/netip"
	"sync"
	"time"
)

// maxPeers bounds how many peers an agent remembers.
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

// initialWindow returns the credit to start with: the one that was used lately, but at
// least first.
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
