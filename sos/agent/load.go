package agent

import (
	"sync"
)

// totals are the bytes of all sessions so far.
type totals struct {
	a *Agent

	mu      sync.Mutex
	goneIn  uint64 // of sessions that have ended
	goneOut uint64
}

// now sums them up, from and to end hosts, and what pipes hold.
func (t *totals) now() (in, out, held uint64) {
	t.mu.Lock()
	in, out = t.goneIn, t.goneOut
	t.mu.Unlock()
	for _, s := range t.a.list() {
		in += s.out.bytes.Load()
		out += s.in.bytes.Load()
		s.in.mu.Lock()
		held += uint64(max(0, s.in.held))
		s.in.mu.Unlock()
	}
	return in, out, held
}

// gone keeps the bytes of a session that has ended.
func (t *totals) gone(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.goneIn += s.out.bytes.Load()
	t.goneOut += s.in.bytes.Load()
}
