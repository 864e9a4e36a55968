package kit

import "sync"

// adoption delays an owner's Ready after a start, until the rules of everything that was loaded
// from the store are known. Until then the switches keep the rules from before.
type adoption struct {
	mu      sync.Mutex
	loaded  bool
	pending map[string]bool // the names whose rules are not known yet
	once    sync.Once
}

// begin sets the names that have been loaded.
func (a *adoption) begin(names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loaded, a.pending = true, map[string]bool{}
	for _, name := range names {
		a.pending[name] = true
	}
}

// known records that the rules of a name are known, or that the name has no rules any more.
func (a *adoption) known(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending, name)
}

// awaits reports whether the rules of a name are not known yet.
func (a *adoption) awaits(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending[name]
}

// complete reports whether the rules of all names are known.
func (a *adoption) complete() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.loaded && len(a.pending) == 0
}

// signal calls ready, once, if the rules of all names are known.
func (a *adoption) signal(ready func()) {
	if a.complete() {
		a.once.Do(ready)
	}
}
