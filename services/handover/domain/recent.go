package domain

import (
	"slices"
	"sync"
)

// recent remembers the latest of many names.
type recent struct {
	mu    sync.Mutex
	order []string // oldest first
	limit int
	set   map[string]bool
}

// newRecent returns an empty recent that holds up to limit names.
func newRecent(limit int) *recent { return &recent{set: map[string]bool{}, limit: limit} }

// add adds a name, and removes the oldest if there are too many.
func (r *recent) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set[name] {
		return
	}
	r.set[name] = true
	r.order = append(r.order, name)
	if len(r.order) > r.limit {
		delete(r.set, r.order[0])
		r.order = slices.Delete(r.order, 0, 1)
	}
}

// has reports whether the name is remembered.
func (r *recent) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set[name]
}
