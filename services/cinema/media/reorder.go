package media

import (
	"bytes"
	"math"
	"time"
)

// Bounds of reordering: how many packets wait for a missing one, and for how long.
const (
	videoWindow    = 512
	audioWindow    = 64
	reorderTimeout = 100 * time.Millisecond
)

// maxJump is the largest step of sequence numbers within one run of a producer, as in RFC 3550,
// appendix A.1 (MAX_DROPOUT).
const maxJump = 3000

// oldRunTime is how long packets with the SSRC of a producer's previous run count as late packets, and
// not as another new run.
const oldRunTime = time.Second

// reorderBuffer puts the packets of one medium of a channel into the order of their sequence
// numbers, and removes duplicates. It extends sequence numbers beyond 16 bits. It starts closed
// and releases nothing until it is opened at a number. A new run of the producer, with another
// SSRC or a jump of numbers, closes it.
type reorderBuffer struct {
	window int
	// strict reports whether a missing packet is skipped only if a key frame is waiting, which
	// depends on nothing before it.
	strict  bool
	started bool // a packet has arrived
	open    bool
	ssrc    uint32
	// next is the number of the packet that is released next, and highest the highest number that
	// has arrived.
	next, highest int64
	// since is when the buffer began to wait for the packet next; zero if it does not wait. stalled
	// reports whether it has waited for longer than reorderTimeout.
	since   time.Time
	stalled bool
	waiting map[int64]Packet
	// prevSSRC is the SSRC of the previous run, which ended at prevEndedAt.
	prevSSRC    uint32
	prevEndedAt time.Time
}

func newReorderBuffer(window int) reorderBuffer {
	return reorderBuffer{window: window, waiting: map[int64]Packet{}}
}

// add adds a packet, and reports whether it is new and not too late.
func (b *reorderBuffer) add(p Packet, now time.Time) bool {
	if b.started && p.SSRC != b.ssrc && p.SSRC == b.prevSSRC && now.Sub(b.prevEndedAt) < oldRunTime {
		return false
	}
	step := int64(int16(p.Sequence - uint16(b.highest)))
	number := b.highest + step
	switch {
	case !b.started || p.SSRC != b.ssrc || step > maxJump || step < -maxJump:
		number = int64(p.Sequence) + math.MaxUint16 + 1 // keeps earlier numbers above zero
		b.restart(p.SSRC, number, now)
	case b.open && number < b.next:
		return false
	case step > 0:
		b.highest = number
	}
	if _, twice := b.waiting[number]; twice {
		return false
	}
	if !b.open || number != b.next { // otherwise the packet is released at once, and need not be copied
		p.Payload = bytes.Clone(p.Payload)
	}
	b.waiting[number] = p
	return true
}

func (b *reorderBuffer) restart(ssrc uint32, edge int64, now time.Time) {
	if b.started && ssrc != b.ssrc {
		b.prevSSRC, b.prevEndedAt = b.ssrc, now
	}
	b.started, b.open, b.stalled, b.ssrc, b.highest = true, false, false, ssrc, edge
	clear(b.waiting)
}

// keepHighest drops all waiting packets except the latest.
func (b *reorderBuffer) keepHighest() {
	for n := range b.waiting {
		if n != b.highest {
			delete(b.waiting, n)
		}
	}
}

func (b *reorderBuffer) lowest() (lowest int64, any bool) {
	lowest = math.MaxInt64
	for number := range b.waiting {
		lowest = min(lowest, number)
	}
	return lowest, len(b.waiting) > 0
}

// openAt opens the buffer at a number and drops earlier packets.
func (b *reorderBuffer) openAt(number int64, now time.Time) {
	b.open, b.next, b.since, b.stalled = true, number, now, false
	for n := range b.waiting {
		if n < number {
			delete(b.waiting, n)
		}
	}
}

// openAtKeyFrame opens the buffer at the first packet of the key frame to which p belongs, and reports
// whether that packet has arrived. The first packet is the one with the parameter set or, in a picture
// without a parameter set, the one after the last packet of another picture.
func (b *reorderBuffer) openAtKeyFrame(p Packet, now time.Time) bool {
	number := b.highest + int64(int16(p.Sequence-uint16(b.highest)))
	begins := p.hasParameterSet()
	if !begins && !p.KeyFrame() {
		number++ // p may precede a key frame that is waiting
		next, ok := b.waiting[number]
		if !ok || !next.KeyFrame() {
			b.trim()
			return false
		}
		p = next
	}
	for {
		before, ok := b.waiting[number-1]
		if !ok || before.Timestamp != p.Timestamp {
			begins = begins || ok
			break
		}
		number--
		begins = begins || before.hasParameterSet()
	}
	if !begins {
		b.trim()
		return false
	}
	b.openAt(number, now)
	return true
}

// trim bounds the waiting packets of a closed buffer by dropping the earliest. It leaves half
// of the window free for packets that complete the order.
func (b *reorderBuffer) trim() {
	for len(b.waiting) > b.window/2 {
		lowest, _ := b.lowest()
		delete(b.waiting, lowest)
	}
}

// pop removes the next packet from the buffer and returns it, if it has arrived.
func (b *reorderBuffer) pop() (Packet, bool) {
	p, ok := b.waiting[b.next]
	if !b.open || !ok {
		return p, false
	}
	delete(b.waiting, b.next)
	b.next++
	b.since, b.stalled = time.Time{}, false
	return p, true
}

// released reports whether a packet has been released already.
func (b *reorderBuffer) released(p Packet) bool {
	return p.SSRC == b.ssrc && b.highest+int64(int16(p.Sequence-uint16(b.highest))) < b.next
}

// skip gives up missing packets if the buffer has waited for reorderTimeout, or if more packets wait
// than the window allows. It returns how many packets it has given up.
func (b *reorderBuffer) skip(now time.Time) uint64 {
	if !b.open || len(b.waiting) == 0 {
		return 0
	}
	if b.since.IsZero() {
		b.since = now
	}
	if len(b.waiting) <= b.window && now.Sub(b.since) < reorderTimeout {
		return 0
	}
	to, _ := b.lowest()
	if b.strict {
		if to = b.keyFrame(); to == 0 {
			b.stall()
			return 0
		}
	}
	lost := uint64(to - b.next)
	for n := range b.waiting {
		if n < to {
			delete(b.waiting, n)
			lost--
		}
	}
	b.next, b.since, b.stalled = to, time.Time{}, false
	return lost
}

// keyFrame returns the number of the first packet of the first waiting key frame, or zero.
func (b *reorderBuffer) keyFrame() (first int64) {
	for n, p := range b.waiting {
		if (first == 0 || n < first) && p.hasParameterSet() {
			first = n
		}
	}
	return first
}

// stall makes the buffer wait for a key frame or the missing packet without a time limit. If more
// packets wait than the window allows, it drops all of them, because a repair of the stream repeats
// them too.
func (b *reorderBuffer) stall() {
	b.stalled = true
	if len(b.waiting) > b.window {
		clear(b.waiting)
	}
}

// missing reports whether the next packet is missing, and returns since when.
func (b *reorderBuffer) missing() (since time.Time, ok bool) {
	return b.since, b.open && !b.since.IsZero()
}

// due returns the time at which skip will give up missing packets. It returns zero if no packet waits,
// or if the buffer waits without a time limit.
func (b *reorderBuffer) due() time.Time {
	if !b.open || b.stalled || len(b.waiting) == 0 || b.since.IsZero() {
		return time.Time{}
	}
	return b.since.Add(reorderTimeout)
}

// hasParameterSet reports whether a sequence parameter set starts in the packet. In the house format, a
// key frame's access unit starts with one.
func (p Packet) hasParameterSet() bool {
	for kind := range p.units() {
		if kind == nalParameters {
			return true
		}
	}
	return false
}
