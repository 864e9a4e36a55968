package agent

import (
	"net/netip"
	"sync"
)

const (
	// shortSession is the most that a session carries that needs no second connection, in
	// bytes.
	shortSession = 64 << 10
	// shortInRow is how many of a server's latest sessions have to have been short.
	shortInRow = 3
	// maxSizes bounds the number of servers that are remembered.
	maxSizes = 4096
)

// sessionSizes remembers which servers' latest sessions were short. It is safe for
// concurrent use.
type sessionSizes struct {
	mu          sync.Mutex
	consecutive map[netip.AddrPort]int // short sessions since the last that was not short
}

func newSessionSizes() *sessionSizes { return &sessionSizes{consecutive: map[netip.AddrPort]int{}} }

// record records how much a session has carried.
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
