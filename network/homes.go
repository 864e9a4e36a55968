package network

import (
	"maps"
	"net/netip"
	"sync"
	"time"
)

// homes are the addresses that switches have been up from.
type homes struct {
	mu   sync.Mutex
	last map[netip.Addr]time.Time // when one came up or left
}

const (
	// homeAge is how long an address is remembered.
	homeAge = time.Hour
	// maxHomes bounds them.
	maxHomes = 4096
)

func (h *homes) note(a netip.Addr, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		h.last = map[netip.Addr]time.Time{}
	}
	if _, is := h.last[a]; !is && len(h.last) >= maxHomes {
		maps.DeleteFunc(h.last, func(_ netip.Addr, at time.Time) bool { return now.Sub(at) > homeAge })
		if len(h.last) >= maxHomes {
			return
		}
	}
	h.last[a] = now
}

func (h *homes) known(a netip.Addr, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, is := h.last[a]
	return is && now.Sub(at) <= homeAge
}
