package media

import (
	"bytes"
	"math"
	"time"
)

// How far packets may come out of order: as many may wait for one that is missing, for so long.
const (
	videoWindow = 512
	audioWindow = 64
	patience    = 100 * time.Millisecond
)

// maxJump is the greatest step of sequence numbers within one run of a producer, as RFC 3550,
// appendix A.1, has it (MAX_DROPOUT).
const maxJump = 3000

// forget is how long packets of a producer's run before count as late ones, not as another run.
const forget = time.Second

// order puts the packets of one medium of one channel into the order of their numbers, each
// once. Numbers are counted on beyond 16 bits. It is closed, and lets nothing through, until
// it is opened at a number; another run of the producer, with another SSRC or other numbers,
// closes it.
type order struct {
	window int
	// whole: what is missing is not gone without, unless a key frame is there that needs nothing
	// of what was before it.
	whole bool
	known bool // a packet has come
	open  bool
	ssrc  uint32
	// next is the number that comes out next, edge the highest that has come.
	next, edge int64
	// since is when next became the number that is missing; stalled: patience is over since.
	since   time.Time
	stalled bool
	waiting map[int64]Packet
	// before is the SSRC of the run before, which ended at ended.
	before uint32
	ended  time.Time
}

func newOrder(window int) order { return order{window: window, waiting: map[int64]Packet{}} }

// add takes a packet, unless it has been taken before or is too late.
func (o *order) add(p Packet, now time.Time) bool {
	if o.known && p.SSRC != o.ssrc && p.SSRC == o.before && now.Sub(o.ended) < forget {
		return false
	}
	step := int64(int16(p.Sequence - uint16(o.edge)))
	number := o.edge + step
	switch {
	case !o.known || p.SSRC != o.ssrc || step > maxJump || step < -maxJump:
		number = int64(p.Sequence) + math.MaxUint16 + 1 // so that what came before it is not below zero
		o.restart(p.SSRC, number, now)
	case o.open && number < o.next:
		return false
	case step > 0:
		o.edge = number
	}
	if _, twice := o.waiting[number]; twice {
		return false
	}
	if !o.open || number != o.next { // else it is taken at once
		p.Payload = bytes.Clone(p.Payload)
	}
	o.waiting[number] = p
	return true
}

func (o *order) restart(ssrc uint32, edge int64, now time.Time) {
	if o.known && ssrc != o.ssrc {
		o.before, o.ended = o.ssrc, now
	}
	o.known, o.open, o.stalled, o.ssrc, o.edge = true, false, false, ssrc, edge
	clear(o.waiting)
}

// keepEdge forgets all that waits but the last.
func (o *order) keepEdge() {
	for n := range o.waiting {
		if n != o.edge {
			delete(o.waiting, n)
		}
	}
}

func (o *order) lowest() (lowest int64, any bool) {
	lowest = math.MaxInt64
	for number := range o.waiting {
		lowest = min(lowest, number)
	}
	return lowest, len(o.waiting) > 0
}

// openAt has what waits come out from a number on.
func (o *order) openAt(number int64, now time.Time) {
	o.open, o.next, o.since, o.stalled = true, number, now, false
	for n := range o.waiting {
		if n < number {
			delete(o.waiting, n)
		}
	}
}

// openAtKeyFrame opens at the first packet of the key frame of which the packet is one, if that
// is there: it is that of the parameter set, or the first of a picture that has none.
func (o *order) openAtKeyFrame(p Packet, now time.Time) bool {
	number := o.edge + int64(int16(p.Sequence-uint16(o.edge)))
	begins := p.parameters()
	if !begins && !p.KeyFrame() {
		number++ // what came before it may be what is missing of a key frame that is there
		next, is := o.waiting[number]
		if !is || !next.KeyFrame() {
			o.trim()
			return false
		}
		p = next
	}
	for {
		before, is := o.waiting[number-1]
		if !is || before.Timestamp != p.Timestamp {
			begins = begins || is
			break
		}
		number--
		begins = begins || before.parameters()
	}
	if !begins {
		o.trim()
		return false
	}
	o.openAt(number, now)
	return true
}

// trim keeps what waits within its bound when nothing of it could be let out: the lowest goes.
// Half the window stays free for what comes until the order is complete.
func (o *order) trim() {
	for len(o.waiting) > o.window/2 {
		lowest, _ := o.lowest()
		delete(o.waiting, lowest)
	}
}

// take returns the next packet if it is there.
func (o *order) take() (Packet, bool) {
	p, is := o.waiting[o.next]
	if !o.open || !is {
		return p, false
	}
	delete(o.waiting, o.next)
	o.next++
	o.since, o.stalled = time.Time{}, false
	return p, true
}

// past says whether a packet is one of those that have come out.
func (o *order) past(p Packet) bool {
	return p.SSRC == o.ssrc && o.edge+int64(int16(p.Sequence-uint16(o.edge))) < o.next
}

// skip gives up what is missing if it has been waited for long enough, and returns how many
// packets that are.
func (o *order) skip(now time.Time) uint64 {
	if !o.open || len(o.waiting) == 0 {
		return 0
	}
	if o.since.IsZero() {
		o.since = now
	}
	if len(o.waiting) <= o.window && now.Sub(o.since) < patience {
		return 0
	}
	to, _ := o.lowest()
	if o.whole {
		if to = o.keyFrame(); to == 0 {
			o.stall()
			return 0
		}
	}
	lost := uint64(to - o.next)
	for n := range o.waiting {
		if n < to {
			delete(o.waiting, n)
			lost--
		}
	}
	o.next, o.since, o.stalled = to, time.Time{}, false
	return lost
}

// keyFrame is the number of the first packet of the first key frame that waits; 0 if none does.
func (o *order) keyFrame() (first int64) {
	for n, p := range o.waiting {
		if (first == 0 || n < first) && p.parameters() {
			first = n
		}
	}
	return first
}

// stall waits for a key frame, or for what is missing if it comes yet, whatever time that takes.
// Of what waits beyond the window, nothing is kept: what is missing then comes with all of it.
func (o *order) stall() {
	o.stalled = true
	if len(o.waiting) > o.window {
		clear(o.waiting)
	}
}

// missing says since when a packet is waited for; false if none is.
func (o *order) missing() (since time.Time, is bool) {
	return o.since, o.open && !o.since.IsZero()
}

// due is when skip will give up; zero if nothing waits, or if time alone changes nothing.
func (o *order) due() time.Time {
	if !o.open || o.stalled || len(o.waiting) == 0 || o.since.IsZero() {
		return time.Time{}
	}
	return o.since.Add(patience)
}

// parameters says whether the packet holds a sequence parameter set, with which a key frame's
// access unit begins in the house format.
func (p Packet) parameters() bool {
	if !p.Video() || len(p.Payload) == 0 {
		return false
	}
	switch nalType(p.Payload[0]) {
	case nalParameters:
		return true
	case nalAggregate:
		for b := p.Payload[1:]; len(b) > 2; {
			n := int(b[0])<<8 | int(b[1])
			if b = b[2:]; n == 0 || n > len(b) {
				return false
			}
			if nalType(b[0]) == nalParameters {
				return true
			}
			b = b[n:]
		}
	}
	return false
}
