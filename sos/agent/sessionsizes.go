package agent

import (
	"net/netip"
	"sync"
)

const (
	// shortSession is what a session carries at most that needs no second connection.
	shortSession = 64 << 10
	// shortInRow is how many of a server's sessions have to have been short.
	shortInRow = 3
	// maxSizes bounds the servers that are remembered.
	maxSizes = 4096
)

// sizes remembers of which servers the latest sessions were short. It is safe for
// concurrent use.
type sizes struct {
	mu  sync.Mutex
	row map[netip.AddrPort]int // short sessions since the last that was not
}

func newSizes() *sizes { return &sizes{row: map[netip.AddrPort]int{}} }

// note takes in what a session has carried.
func (z *sizes) note(server netip.AddrPort, bytes uint64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if bytes > shortSession {
		delete(z.row, server)
		return
	}
	if _, known := z.row[server]; !known && len(z.row) >= maxSizes {
		clear(z.row)
	}
	z.row[server] = min(z.row[server]+1, shortInRow)
}

// short says whether the next session with the server is likely to be short.
func (z *sizes) short(server netip.AddrPort) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.row[server] >= shortInRow
}
