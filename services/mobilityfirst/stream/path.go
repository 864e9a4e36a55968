package stream

import (
	"slices"
	"time"
)

// Path is one of the paths that a stream's frames use at one time, with its own congestion window
// and round-trip time.
type Path struct {
	window window
	rtt    roundTrip
	// inFlight is the number of frames sent by the path that are neither acknowledged nor lost;
	// transmissions counts all frames sent by it.
	inFlight      int
	transmissions uint64
	deadline      time.Time   // when the receiver counts as silent; zero while no answer is expected
	query         bool        // a query has to be sent by it
	silent        bool        // no answer has come by it in time
	newAcks       ackedFrames // the frames acknowledged by the last acknowledgement
}

// NewPath returns a path by which no frame has been sent.
func NewPath() *Path { return &Path{window: newWindow()} }

// isFull reports whether the congestion window allows no more frames now.
func (p *Path) isFull() bool { return p.inFlight >= p.window.size() }

// isBetterThan reports whether frames should go by this path rather than by another: its round trip
// is shorter, or has not been measured yet.
func (p *Path) isBetterThan(other *Path) bool { return p.rtt.smooth < other.rtt.smooth }

// reset prepares the path for the next stream, which has no frames in flight.
func (p *Path) reset() {
	p.window, p.inFlight, p.transmissions, p.deadline, p.query, p.silent = newWindow(), 0, 0, time.Time{}, false, false
}

// ackedFrames describes the frames of one path that an acknowledgement has newly acknowledged.
type ackedFrames struct {
	count int // newly acknowledged frames
	// transmission is the latest transmission of them, at is when it was made, and measured reports
	// whether the frame was sent only once.
	transmission uint64
	at           time.Time
	measured     bool
}

// handleAcks updates the path by the frames that an acknowledgement has newly acknowledged. If
// there are several paths, the queue on each is kept short, because all paths share the receiver's
// limit. A path that is alone does not build a long queue once its window exceeds modestWindow.
func (p *Path) handleAcks(f *flight, alone bool, now time.Time) {
	acks := p.newAcks
	if acks.measured {
		p.rtt.measure(now.Sub(acks.at))
	}
	p.rtt.timeouts, p.silent = 0, false
	switch {
	case alone && (p.window.frames < modestWindow || !p.rtt.isDelayed()), !alone && !p.rtt.isQueued():
		p.window.grow(acks.count)
	case !alone:
		p.window.lost(acks.transmission, p.transmissions)
	}
	p.window.lost(f.detectLosses(p, acks.transmission), p.transmissions)
}

// Add adds a path to the stream.
func (s *Sender) Add(p *Path) { s.paths = append(s.paths, p) }

// Drop removes a path from the stream and marks its frames in flight as lost. It keeps the last
// path.
func (s *Sender) Drop(p *Path, now time.Time) {
	if i := slices.Index(s.paths, p); i >= 0 && len(s.paths) > 1 {
		s.sent.loseAll(p)
		s.paths = slices.Delete(s.paths, i, i+1)
		s.setDeadlines(now)
	}
}

// Heard records that a frame has arrived by a path, so that the path is not silent. If the path was
// silent and other paths carry frames, its timeouts and its deadline are reset.
func (s *Sender) Heard(p *Path) {
	if p.silent && len(s.paths) > 1 && s.inFlight() > 0 {
		p.rtt.timeouts, p.deadline = 0, time.Time{}
	}
	p.silent = false
}

// Acked reports whether the last acknowledgement acknowledged new frames of the path.
func (p *Path) Acked() bool { return p.newAcks.count > 0 }

// Rerouted records that a path uses another route from now on, so that the minimum round-trip time
// has to be measured again. The frames in flight count as lost, because they were sent by the route
// of before. They are sent again at once, whatever deadline a silent receiver has been given.
func (s *Sender) Rerouted(p *Path, now time.Time) {
	p.rtt.minimum, p.rtt.timeouts = 0, 0
	p.silent, p.query = false, false
	s.sent.loseAll(p)
	p.deadline = time.Time{}
	s.setDeadlines(now)
}

// hasOtherPath reports whether there is a path, other than except, that is not silent.
func (s *Sender) hasOtherPath(except *Path) bool {
	return slices.ContainsFunc(s.paths, func(p *Path) bool { return p != except && !p.silent })
}

// inFlight returns the number of frames in flight.
func (s *Sender) inFlight() (n int) {
	for _, p := range s.paths {
		n += p.inFlight
	}
	return n
}

// maxUntriedFrames limits the frames in flight by a path whose round-trip time has not been
// measured yet, while that of another path has.
const maxUntriedFrames = 2

// atUntriedLimit reports whether the path has reached maxUntriedFrames.
func (s *Sender) atUntriedLimit(p *Path) bool {
	return p.rtt.smooth == 0 && p.inFlight >= maxUntriedFrames && slices.ContainsFunc(s.paths, func(other *Path) bool { return other.rtt.smooth > 0 })
}

// maySend reports whether a frame may be sent by a path now. It may not if a better path has room,
// or if the path is silent and others are not. Until the receiver knows the stream, only the first
// path may be used, because a frame by another path could arrive before the first frame.
func (s *Sender) maySend(p *Path) bool {
	if first := s.paths[0]; p != first && s.sent.base == 0 && !first.silent {
		return false
	}
	return !p.isFull() && !s.atUntriedLimit(p) && !slices.ContainsFunc(s.paths, func(other *Path) bool {
		return other != p && !other.silent && (p.silent || other.isBetterThan(p) && !other.isFull())
	})
}

// expectsAnswer reports whether an answer has to arrive by a path: for its frames in flight, or to
// find out whether it works. If no frames are in flight at all, the first path also expects the
// message that there is room, or that chunks have been taken over.
func (s *Sender) expectsAnswer(p *Path) bool {
	if len(s.chunks) == 0 {
		return false
	}
	return p.inFlight > 0 || p.silent || p == s.paths[0] && s.inFlight() == 0
}

// setDeadlines sets the deadline of each path that expects an answer and has none yet.
func (s *Sender) setDeadlines(now time.Time) {
	for _, p := range s.paths {
		if !s.expectsAnswer(p) {
			p.deadline = time.Time{}
		} else if p.deadline.IsZero() {
			p.deadline = now.Add(p.rtt.timeout())
		}
	}
}

// Deadline returns when Expire has to be called unless an acknowledgement arrives before; it is
// zero if no answer is expected.
func (s *Sender) Deadline() (earliest time.Time) {
	for _, p := range s.paths {
		if !p.deadline.IsZero() && (earliest.IsZero() || p.deadline.Before(earliest)) {
			earliest = p.deadline
		}
	}
	return earliest
}

// Expire handles a receiver that has not answered by the deadline, and returns the paths that have
// expired. It marks their frames in flight as lost. By a path without frames in flight, or if other
// paths are not silent, it sends a query as well.
func (s *Sender) Expire(now time.Time) (silent []*Path) {
	for _, p := range s.paths {
		if p.deadline.IsZero() || now.Before(p.deadline) {
			continue
		}
		p.rtt.timeouts++
		p.silent = true
		p.query = p.inFlight == 0 || s.hasOtherPath(p)
		if p.inFlight > 0 {
			s.sent.loseAll(p)
			p.window.collapse()
		}
		p.deadline = time.Time{}
		silent = append(silent, p)
	}
	s.setDeadlines(now)
	return silent
}
