package probe

// Window holds the results of the latest probes.
type Window struct {
	lost []bool
	next int
	full bool
}

// NewWindow returns a Window of size probes.
func NewWindow(size int) *Window { return &Window{lost: make([]bool, max(size, 1))} }

// Add adds the result of one probe: whether it was lost.
func (w *Window) Add(lost bool) {
	w.lost[w.next] = lost
	w.next++
	if w.next == len(w.lost) {
		w.next, w.full = 0, true
	}
}

// Reset removes all results.
func (w *Window) Reset() { w.next, w.full = 0, false }

// Len returns the number of probes in the window.
func (w *Window) Len() int {
	if w.full {
		return len(w.lost)
	}
	return w.next
}

// Loss returns the share of the probes in the window that was lost, from 0 to 1.
func (w *Window) Loss() float64 {
	n := w.Len()
	if n == 0 {
		return 0
	}
	lost := 0
	for _, l := range w.lost[:n] {
		if l {
			lost++
		}
	}
	return float64(lost) / float64(n)
}
