package media

import (
	"net/netip"
	"time"
)

// Out is one packet of the spliced stream.
type Out struct {
	// Packet is what has come from the source. Its payload is valid until the splicer is used
	// the next time.
	Packet
	// Sequence and Timestamp are those of the spliced stream.
	Sequence  uint16
	Timestamp uint32
	// Time is since the stream began, by one clock for picture and sound.
	Time time.Duration
	// Cut says that it is the first packet of another channel's picture.
	Cut bool
}

// Counts is what a splicer has seen.
type Counts struct {
	Packets uint64 // in the stream
	Lost    uint64 // given up, of the source that was in the stream
	Doubled uint64 // came again, or too late to be of use
	Strange uint64 // from a source that is not expected, or of a type that is not
}

// Splicer makes one continuous stream, of one picture and one sound, out of channels that
// follow each other. It knows no clock and starts nothing: the time is an argument, and what
// is to be sent is what its methods return, valid until the next call. It is not safe for
// concurrent use.
//
// A channel enters at the first packet of a key frame, that of its sequence parameter set,
// which is looked for among the packets that have come, in the order of their numbers.
//
// A picture of which a packet is missing is waited for, and so is what follows, which cannot be
// decoded without it: until the packet comes ([Splicer.Missing] says when to ask for it), or
// another key frame.
type Splicer struct {
	current, next *feed
	video, audio  line
	begin         time.Time
	counts        Counts
	out           []Out
}

// feed is a channel whose packets come.
type feed struct {
	from         netip.AddrPort
	video, audio order
}

// detour is how much later than others a packet may come that is not lost.
const detour = 10 * time.Millisecond

// NewSplicer returns one whose stream has nothing in it until a channel is there.
func NewSplicer() *Splicer {
	return &Splicer{video: line{rate: VideoClock, least: squeezed, squeezes: true}, audio: line{rate: AudioClock, least: heard}}
}

// Change has the stream change to the channel that comes from an address, as soon as that has
// a key frame. A change that has not been made yet is given up.
func (s *Splicer) Change(from netip.AddrPort) {
	s.next = nil
	if s.current == nil || s.current.from != from {
		s.next = &feed{from: from, video: newOrder(videoWindow), audio: newOrder(audioWindow)}
		s.next.video.whole = true
	}
}

// Stay gives up a change that has not been made yet.
func (s *Splicer) Stay() { s.next = nil }

// Changing says whether a change has not been made yet.
func (s *Splicer) Changing() bool { return s.next != nil }

// Current is where the channel in the stream comes from; it is not valid before the first.
func (s *Splicer) Current() netip.AddrPort {
	if s.current == nil {
		return netip.AddrPort{}
	}
	return s.current.from
}

// Counts returns what has been seen so far.
func (s *Splicer) Counts() Counts { return s.counts }

// Push takes a packet that has come from an address. Its payload is copied if it has to wait.
func (s *Splicer) Push(from netip.AddrPort, p Packet, now time.Time) []Out {
	s.out = s.out[:0]
	f := s.feedOf(from)
	switch {
	case f == nil || !p.Control && !p.Video() && !p.Audio():
		s.counts.Strange++
	case p.Video():
		s.pushVideo(f, p, now)
	case p.Audio():
		s.pushAudio(f, p, now)
	}
	return s.out
}

func (s *Splicer) feedOf(from netip.AddrPort) *feed {
	for _, f := range []*feed{s.next, s.current} {
		if f != nil && f.from == from {
			return f
		}
	}
	return nil
}

func (s *Splicer) pushVideo(f *feed, p Packet, now time.Time) {
	if !f.video.add(p, now) {
		s.counts.Doubled++
		return
	}
	cut := false
	if !f.video.open {
		if !f.video.openAtKeyFrame(p, now) {
			return
		}
		s.video.fresh = true
		if cut = f == s.next; cut {
			s.current, s.next = f, nil
			s.audio.fresh = true
		}
	}
	s.drain(&f.video, &s.video, now, cut)
}

func (s *Splicer) pushAudio(f *feed, p Packet, now time.Time) {
	if !f.audio.add(p, now) {
		s.counts.Doubled++
		return
	}
	if !f.audio.open {
		if f != s.current || !f.video.open {
			f.audio.keepEdge() // sound that nobody hears
			return
		}
		f.audio.openAt(f.audio.edge, now)
		s.audio.fresh = true
	}
	s.drain(&f.audio, &s.audio, now, false)
}

// Missing says whether packets of the picture in the stream have been missing for longer than
// by a detour: asking for them may help.
func (s *Splicer) Missing(now time.Time) bool {
	if s.current == nil {
		return false
	}
	since, is := s.current.video.missing()
	return is && now.Sub(since) >= detour
}

// Due is when Tick has something to do; zero if nothing waits.
func (s *Splicer) Due() time.Time {
	if s.current == nil {
		return time.Time{}
	}
	a, b := s.current.video.due(), s.current.audio.due()
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Tick goes on without packets that have not come in time.
func (s *Splicer) Tick(now time.Time) []Out {
	s.out = s.out[:0]
	if s.current != nil {
		s.drain(&s.current.video, &s.video, now, false)
		s.drain(&s.current.audio, &s.audio, now, false)
	}
	return s.out
}

// Repeat puts packets of the picture into the stream again, from a key frame on, for a player
// that has lost it. They are those of the channel in the stream, in order; what has not been in
// it yet is left out.
func (s *Splicer) Repeat(packets []Packet, now time.Time) []Out {
	s.out = s.out[:0]
	if s.current == nil || !s.current.video.open {
		return nil
	}
	s.video.fresh = true
	for _, p := range packets {
		if p.Video() && s.current.video.past(p) {
			s.emit(&s.video, p, now, false)
		}
	}
	s.video.fresh = false // without packets nothing is different
	return s.out
}

// drain puts into the stream what is in order now.
func (s *Splicer) drain(o *order, l *line, now time.Time, cut bool) {
	for {
		p, ok := o.take()
		if !ok {
			lost := o.skip(now)
			if lost == 0 {
				return
			}
			s.counts.Lost += lost
			continue
		}
		s.emit(l, p, now, cut)
		cut = false
	}
}

func (s *Splicer) emit(l *line, p Packet, now time.Time, cut bool) {
	if l.old(p, now) {
		s.counts.Doubled++
		return
	}
	if s.begin.IsZero() {
		s.begin = now
	}
	out := Out{Packet: p, Cut: cut}
	out.Sequence, out.Timestamp = l.next(p, now)
	out.Time = l.begin.Sub(s.begin) + l.time()
	s.counts.Packets++
	s.out = append(s.out, out)
}
