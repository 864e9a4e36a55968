package linkprobe

// sizeSearch finds the size of the largest frame that arrives, of a kind of which small frames
// arrive and large ones do not.
type sizeSearch struct {
	started, needed bool
	kind            Kind
	// As far as is known, frames of passes bytes arrive, and those of fails bytes do not.
	passes, fails int
	asked         int  // the size that was tried last; 0 for none
	confirmed     bool // fails was tried twice
}

// next returns the frame to send next, or nothing when the search has ended.
func (s *sizeSearch) next(w *Direction) []frameSize {
	if !s.started {
		s.choose(w)
	}
	if !s.needed {
		return nil
	}
	s.update(w)
	switch {
	case s.passes+1 < s.fails:
		s.asked = s.passes + (s.fails-s.passes)/2
	case !s.confirmed && s.fails < w.maxSize():
		s.asked, s.confirmed = s.fails, true
	default:
		s.needed = false
		return nil
	}
	return []frameSize{{s.kind, s.asked}}
}

// choose chooses the kind of frames for the search: the first kind of which a small frame has
// arrived unchanged and the largest has not arrived. Without such a kind no search is needed.
func (s *sizeSearch) choose(w *Direction) {
	s.started = true
	for k := ICMP; k <= TCPDF; k++ {
		if small, large := w.result(frameSize{k, smallest}), w.result(frameSize{k, w.maxSize()}); small.intact() && large == nil {
			s.needed, s.kind, s.passes, s.fails = true, k, smallest, w.maxSize()
			return
		}
	}
}

// update narrows the range of sizes by the result of the frame that was tried last.
func (s *sizeSearch) update(w *Direction) {
	switch {
	case s.asked == 0:
	case !w.result(frameSize{s.kind, s.asked}).intact():
		s.fails = s.asked
	case s.asked == s.fails: // it was lost by chance the first time
		s.passes, s.fails, s.confirmed = s.asked, w.maxSize(), false
	default:
		s.passes = s.asked
	}
}

// largest returns the size of the largest frame of a kind that arrives; 0 if there was no search
// for it.
func (s *sizeSearch) largest(k Kind) int {
	if k != s.kind {
		return 0
	}
	return s.passes
}
