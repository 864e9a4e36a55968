package agent

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// expectedPeers holds the peers whose connections the agent accepts before a session needs them.
// It is safe for concurrent use.
type expectedPeers struct {
	mu    sync.Mutex // a leaf: nothing else is locked under it
	all   map[agentapi.SessionID]*expectedPeer
	until time.Time
}

// expectedPeer is one of these peers.
type expectedPeer struct {
	peer netip.Addr
	key  agentapi.Key
	tls  bool
	used [maxOpenings]bool // by index: whether the opening was accepted
}

// maxOpenings bounds the connections that a peer opens with one key before sessions need them.
const maxOpenings = 2 * agentapi.MaxWarmPaths

// set replaces the list of peers.
func (e *expectedPeers) set(list []agentapi.WarmPeer, until time.Time) {
	all := make(map[agentapi.SessionID]*expectedPeer, len(list))
	for _, p := range list {
		all[p.ID] = &expectedPeer{peer: p.Peer.Addr, key: p.Key, tls: p.Params.TLS}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all, e.until = all, until
}

// has reports whether a peer with the given address is expected.
func (e *expectedPeers) has(peer netip.Addr, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.After(e.until) {
		return false
	}
	for _, p := range e.all {
		if p.peer == peer {
			return true
		}
	}
	return false
}

// admit verifies an opening of an expected peer, and returns the peer's address and key. It accepts
// each opening once: a recorded opening must not occupy a second connection.
func (e *expectedPeers) admit(o wire.Opening, raw []byte, tls bool, now time.Time) (netip.Addr, agentapi.Key, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.all[o.Session]
	if p == nil || now.After(e.until) {
		return netip.Addr{}, agentapi.Key{}, fmt.Errorf("session %x is not announced", o.Session)
	}
	if err := wire.VerifyOpening(raw, p.key[:]); err != nil {
		return netip.Addr{}, p.key, err
	}
	if tls != p.tls {
		return netip.Addr{}, p.key, errTLSDiffers
	}
	if int(o.Index) >= len(p.used) || p.used[o.Index] {
		return netip.Addr{}, p.key, fmt.Errorf("opening %d of peer %v was used before, or is one too many", o.Index, p.peer)
	}
	p.used[o.Index] = true
	return p.peer, p.key, nil
}
