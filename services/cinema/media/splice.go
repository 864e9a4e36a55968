package media

import (
	"net/netip"
	"time"
)

// Out is one packet of the spliced stream.
type Out struct {
	// Packet is the packet from the source. Its payload is valid until the next call of the
	// splicer.
	Packet
	// Sequence and Timestamp are those of the spliced stream.
	Sequence  uint16
	Timestamp uint32
	// Time is the time since the start of the stream, by one clock for picture and sound.
	Time time.Duration
	// Cut marks the first packet of another channel's picture.
	Cut bool
}

// Counts holds the counters of a splicer.
type Counts struct {
	Packets    uint64 // packets in the stream
	Lost       uint64 // missing packets of the stream's source that were given up
	Duplicates uint64 // packets that were duplicates, too late, or too far ahead
	Unexpected uint64 // packets from an unexpected source, or of an unexpected type
}

// Splicer makes one continuous stream, of one picture and one sound, from channels that follow
// each other. It reads no clock and starts no goroutines: the time is an argument, and its
// methods return the packets to send, which are valid until the next call. It is not safe for
// concurrent use.
//
// A channel starts at the first packet of a key frame, the one with the sequence parameter set. The
// splicer looks for this packet among those that have arrived, in the order of their numbers.
//
// If a packet of a picture is missing, the splicer holds back the packets that follow, because they
// cannot be decoded without it. It waits for the missing packet ([Splicer.Missing] reports when to
// request it) or for the next key frame.
type Splicer struct {
	current, next *feed
	video, audio  stamper
	begin         time.Time
	counts        Counts
	out           []Out
}

// feed holds the packets of a channel that have arrived and are not in the stream yet.
type feed struct {
	from         netip.AddrPort
	video, audio reorderBuffer
}

// reorderTolerance is how long a packet may be missing while later ones have arrived before it is
// assumed to be lost.
const reorderTolerance = 10 * time.Millisecond

// NewSplicer returns a Splicer whose stream is empty until the first channel arrives.
func NewSplicer() *Splicer {
	return &Splicer{video: stamper{rate: VideoClock, minStep: minPictureStep, compresses: true}, audio: stamper{rate: AudioClock, minStep: audioPacketTime}}
}

// Change switches the stream to the channel received from the given address at that channel's
// next key frame. It replaces a change that is still pending.
func (s *Splicer) Change(from netip.AddrPort) {
	s.next = nil
	if s.current == nil || s.current.from != from {
		s.next = &feed{from: from, video: newReorderBuffer(videoWindow), audio: newReorderBuffer(audioWindow)}
		s.next.video.strict = true
	}
}

// CancelChange cancels a pending change.
func (s *Splicer) CancelChange() { s.next = nil }

// Changing reports whether a change is pending.
func (s *Splicer) Changing() bool { return s.next != nil }

// Current returns the source of the channel in the stream. It is invalid before the first channel has
// started.
func (s *Splicer) Current() netip.AddrPort {
	if s.current == nil {
		return netip.AddrPort{}
	}
	return s.current.from
}

// Counts returns the counters.
func (s *Splicer) Counts() Counts { return s.counts }

// Push adds a packet from an address, and returns the packets to send. If the packet has to wait, its
// payload is copied.
func (s *Splicer) Push(from netip.AddrPort, p Packet, now time.Time) []Out {
	s.out = s.out[:0]
	f := s.feedOf(from)
	switch {
	case f == nil || !p.Control && !p.Video() && !p.Audio():
		s.counts.Unexpected++
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
		s.counts.Duplicates++
		return
	}
	cut := false
	if !f.video.open {
		if !f.video.openAtKeyFrame(p, now) {
			return
		}
		s.video.resync = true
		if cut = f == s.next; cut {
			s.current, s.next = f, nil
			s.audio.resync = true
		}
	}
	s.drain(&f.video, &s.video, now, cut)
}

func (s *Splicer) pushAudio(f *feed, p Packet, now time.Time) {
	if !f.audio.add(p, now) {
		s.counts.Duplicates++
		return
	}
	if !f.audio.open {
		if f != s.current || !f.video.open {
			f.audio.keepHighest() // nobody hears this sound
			return
		}
		f.audio.openAt(f.audio.highest, now)
		s.audio.resync = true
	}
	s.drain(&f.audio, &s.audio, now, false)
}

// Missing reports whether a packet of the picture has been missing for longer than reordering
// explains, so that a request for it may help.
func (s *Splicer) Missing(now time.Time) bool {
	if s.current == nil {
		return false
	}
	since, ok := s.current.video.missing()
	return ok && now.Sub(since) >= reorderTolerance
}

// Due returns the time at which Tick must be called, or zero if no packet waits for that.
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

// Tick gives up packets that have not arrived in time, and returns the packets to send.
func (s *Splicer) Tick(now time.Time) []Out {
	s.out = s.out[:0]
	if s.current != nil {
		s.drain(&s.current.video, &s.video, now, false)
		s.drain(&s.current.audio, &s.audio, now, false)
	}
	return s.out
}

// Repeat puts packets of pictures into the stream again, from a key frame on, for a player that has
// lost some of them. The packets belong to the channel that is in the stream, and are in order. Repeat
// omits packets that have not been in the stream yet.
func (s *Splicer) Repeat(packets []Packet, now time.Time) []Out {
	s.out = s.out[:0]
	if s.current == nil || !s.current.video.open {
		return nil
	}
	s.video.resync = true
	for _, p := range packets {
		if p.Video() && s.current.video.released(p) {
			s.emit(&s.video, p, now, false)
		}
	}
	s.video.resync = false // if there was no packet, none has reset it
	return s.out
}

// drain moves the packets that are in order from the buffer to the stream. cut reports whether the
// first of them starts another channel.
func (s *Splicer) drain(b *reorderBuffer, st *stamper, now time.Time, cut bool) {
	for {
		p, ok := b.pop()
		if !ok {
			lost := b.skip(now)
			if lost == 0 {
				return
			}
			s.counts.Lost += lost
			continue
		}
		s.emit(st, p, now, cut)
		cut = false
	}
}

func (s *Splicer) emit(st *stamper, p Packet, now time.Time, cut bool) {
	if st.tooEarly(p, now) {
		s.counts.Duplicates++
		return
	}
	if s.begin.IsZero() {
		s.begin = now
	}
	out := Out{Packet: p, Cut: cut}
	out.Sequence, out.Timestamp = st.next(p, now)
	out.Time = st.startedAt.Sub(s.begin) + st.streamTime()
	s.counts.Packets++
	s.out = append(s.out, out)
}
