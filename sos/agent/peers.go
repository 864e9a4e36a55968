package agent

import (
	"net/netip"
	"sync"
	"time"
)

// rememberPeers bounds how many peers an agent remembers.
const rememberPeers = 1024

// peerNote is what the last session with a peer has shown.
type peerNote struct {
	at     time.Time
	rtt    time.Duration
	loss   float64 // share of segments sent again
	window int     // credit that was in use
}

// peers remembers paths to peers, so that the next session starts with the
// right number of connections and a window of the right size.
type peers struct {
	mu    sync.Mutex
	notes map[netip.Addr]peerNote
}

func newPeers() *peers { return &peers{notes: make(map[netip.Addr]peerNote)} }

// window is the credit to start with: first, or what was in use lately.
func (p *peers) window(peer netip.Addr, first int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.notes[peer]
	if !ok || time.Since(n.at) > 10*time.Minute {
		return first
	}
	return max(first, n.window)
}

// learn takes a finished session's figures.
func (p *peers) learn(s *session) {
	path := s.congestion.path()
	s.in.mu.Lock()
	size := s.in.window.size
	s.in.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.notes) >= rememberPeers {
		for k := range p.notes {
			delete(p.notes, k)
			break
		}
	}
	p.notes[s.req.Peer.Addr] = peerNote{at: time.Now(), rtt: path.rtt, loss: path.loss, window: size}
}

// recall returns the note about a peer.
func (p *peers) recall(peer netip.Addr) (peerNote, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.notes[peer]
	return n, ok
}
