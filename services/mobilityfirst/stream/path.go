package stream

import (
	"slices"
	"time"
)

// Path is one of the paths that a stream's frames go by at one time, with a window and a round trip of its own.
type Path struct {
	window window
	rtt    roundTrip
	// under is how many frames are under way by it, neither acknowledged nor lost; orders counts all its transmissions.
	under  int
	orders uint64
	due    time.Time // when the receiver has been silent too long; zero while nothing is awaited
	query  bool      // the receiver is to be asked by it
	silent bool      // nothing has come by it in time
	got    arrival   // of the acknowledgement that is looked at
}

// NewPath returns one that nothing has gone by.
func NewPath() *Path { return &Path{window: newWindow()} }

// full says whether no more may go by it now.
func (p *Path) full() bool { return p.under >= p.window.size() }

// better says whether frames are to go by it rather than by another: its round trip is shorter, or is to be found out.
func (p *Path) better(other *Path) bool { return p.rtt.smooth < other.rtt.smooth }

// reset is for the next stream, of which nothing is under way.
func (p *Path) reset() {
	p.window, p.under, p.orders, p.due, p.query, p.silent = newWindow(), 0, 0, time.Time{}, false, false
}

// arrival is what an acknowledgement has brought of one path.
type arrival struct {
	frames int // that were not known to have come
	// order is the latest transmission of them, at when that was, measured whether it was the
	// frame's only one.
	order    uint64
	at       time.Time
	measured bool
}

// took takes what an acknowledgement has brought. Where others go by other paths, a queue on this one is kept short:
// the room at the receiver is for all of them. One that is alone makes no long queue with more than a modest window.
func (p *Path) took(f *flight, alone bool, now time.Time) {
	got := p.got
	if got.measured {
		p.rtt.measure(now.Sub(got.at))
	}
	p.rtt.tries, p.silent = 0, false
	switch {
	case alone && (p.window.frames < modest || !p.rtt.delayed()), !alone && !p.rtt.queued():
		p.window.grow(got.frames)
	case !alone:
		p.window.missed(got.order, p.orders)
	}
	p.window.missed(f.miss(p, got.order), p.orders)
}

// Add has the stream go by a further path.
func (s *Sender) Add(p *Path) { s.paths = append(s.paths, p) }

// Drop has the stream not go by a path any more: what is under way by it counts as lost. The last path stays.
func (s *Sender) Drop(p *Path, now time.Time) {
	if i := slices.Index(s.paths, p); i >= 0 && len(s.paths) > 1 {
		s.sent.lose(p)
		s.paths = slices.Delete(s.paths, i, i+1)
		s.await(now)
	}
}

// Heard says that something has come by a path: it is not silent. While others carry frames it is as good as before.
func (s *Sender) Heard(p *Path) {
	if p.silent && len(s.paths) > 1 && s.under() > 0 {
		p.rtt.tries, p.due = 0, time.Time{}
	}
	p.silent = false
}

// Came says whether the last acknowledgement told of frames that have gone by the path.
func (p *Path) Came() bool { return p.got.frames > 0 }

// Moved says that the path goes another way from now on: what its round trip was without a queue says nothing any more.
func (p *Path) Moved() { p.rtt.least = 0 }

// alive says whether a path that is not silent is among the paths, but for one.
func (s *Sender) alive(but *Path) bool {
	return slices.ContainsFunc(s.paths, func(p *Path) bool { return p != but && !p.silent })
}

// under is how many frames are under way.
func (s *Sender) under() (n int) {
	for _, p := range s.paths {
		n += p.under
	}
	return n
}

// untriedFrames is how many frames may be under way by a path of which nobody knows yet whether it carries any, while others
// are known to.
const untriedFrames = 2

// untried says whether so many are.
func (s *Sender) untried(p *Path) bool {
	return p.rtt.smooth == 0 && p.under >= untriedFrames && slices.ContainsFunc(s.paths, func(other *Path) bool { return other.rtt.smooth > 0 })
}

// may says whether a frame may go by a path now: not if there is room on a better one, nor if it is silent and others
// are not; nor before the receiver knows the stream, by another than the first, lest it comes before the first frame.
func (s *Sender) may(p *Path) bool {
	if first := s.paths[0]; p != first && s.sent.base == 0 && !first.silent {
		return false
	}
	return !p.full() && !s.untried(p) && !slices.ContainsFunc(s.paths, func(other *Path) bool {
		return other != p && !other.silent && (p.silent || other.better(p) && !other.full())
	})
}

// awaited says whether something has to come by a path: what is under way by it, the answer to whether it is there,
// or, where nothing is under way, by the first the news that there is room or that chunks were taken.
func (s *Sender) awaited(p *Path) bool {
	if len(s.chunks) == 0 {
		return false
	}
	return p.under > 0 || p.silent || p == s.paths[0] && s.under() == 0
}

// await sets until when something has to come from the receiver, by each path of which that was not set.
func (s *Sender) await(now time.Time) {
	for _, p := range s.paths {
		if !s.awaited(p) {
			p.due = time.Time{}
		} else if p.due.IsZero() {
			p.due = now.Add(p.rtt.patience())
		}
	}
}

// Deadline is when Expire is to be called, unless there is an acknowledgement before; zero for not
// at all.
func (s *Sender) Deadline() (due time.Time) {
	for _, p := range s.paths {
		if !p.due.IsZero() && (due.IsZero() || p.due.Before(due)) {
			due = p.due
		}
	}
	return due
}

// Expire is for a receiver that has been silent until the deadline, and says by which paths: all that is under way
// by these counts as lost, and the receiver is asked if nothing was, or goes by others.
func (s *Sender) Expire(now time.Time) (silent []*Path) {
	for _, p := range s.paths {
		if p.due.IsZero() || now.Before(p.due) {
			continue
		}
		p.rtt.tries++
		p.silent = true
		p.query = p.under == 0 || s.alive(p)
		if p.under > 0 {
			s.sent.lose(p)
			p.window.collapse()
		}
		p.due = time.Time{}
		silent = append(silent, p)
	}
	s.await(now)
	return silent
}
