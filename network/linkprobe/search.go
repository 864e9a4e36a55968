package linkprobe

// search finds the size of the largest frame that arrives, of one kind of which small
// ones do and large ones do not.
type search struct {
	begun, needed bool
	kind          Kind
	// Frames of passes bytes arrive, those of fails do not, as far as is known.
	passes, fails int
	asked         int  // the size that was asked about last; 0 for none
	confirmed     bool // fails was asked about twice
}

// next is what to send next; nothing when the search is over.
func (s *search) next(w *Way) []cell {
	if !s.begun {
		s.begin(w)
	}
	if !s.needed {
		return nil
	}
	s.heed(w)
	switch {
	case s.passes+1 < s.fails:
		s.asked = s.passes + (s.fails-s.passes)/2
	case !s.confirmed && s.fails < w.full():
		s.asked, s.confirmed = s.fails, true
	default:
		s.needed = false
		return nil
	}
	return []cell{{s.kind, s.asked}}
}

// begin chooses the kind.
func (s *search) begin(w *Way) {
	s.begun = true
	for k := ICMP; k <= TCPDF; k++ {
		if small, large := w.result(cell{k, smallest}), w.result(cell{k, w.full()}); small.whole() && large == nil {
			s.needed, s.kind, s.passes, s.fails = true, k, smallest, w.full()
			return
		}
	}
}

// heed draws the conclusion from the latest answer.
func (s *search) heed(w *Way) {
	switch {
	case s.asked == 0:
	case !w.result(cell{s.kind, s.asked}).whole():
		s.fails = s.asked
	case s.asked == s.fails: // it was lost by chance before
		s.passes, s.fails, s.confirmed = s.asked, w.full(), false
	default:
		s.passes = s.asked
	}
}

// largest is the size of the largest frame of a kind that arrives; 0 if that was not
// searched for.
func (s *search) largest(k Kind) int {
	if k != s.kind {
		return 0
	}
	return s.passes
}
