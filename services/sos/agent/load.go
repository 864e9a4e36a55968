package agent

import (
	"sync"
)

// totals counts the bytes of all sessions so far.
type totals struct {
	a *Agent

	mu      sync.Mutex
	goneIn  uint64 // of sessions that have ended
	goneOut uint64
}

// sum returns the bytes from and to end hosts, and the bytes held in pipes.
func (t *totals) sum() (in, out, held uint64) {
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

// add adds the bytes of a session that has ended.
func (t *totals) add(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.goneIn += s.out.bytes.Load()
	t.goneOut += s.in.bytes.Load()
}
