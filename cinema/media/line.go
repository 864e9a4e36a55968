package media

import "time"

const (
	// squeezed is the time between two pictures that come faster than they are to be shown.
	squeezed = time.Millisecond
	// heard is how long one packet of sound lasts, as the house format has it.
	heard = 20 * time.Millisecond
	// onTime is how far ahead of the clock a picture may be that counts as coming live.
	onTime = 10 * time.Millisecond
	// ahead is how far sound may be ahead of the clock: as much as comes at once from a producer.
	// More would be heard late for as long as the channel is.
	ahead = 120 * time.Millisecond
	// maxPause is the longest time between two packets that a producer's clock is believed.
	maxPause = 10 * time.Second
)

// line numbers and stamps one medium of the stream.
type line struct {
	rate int64 // of its timestamps, in Hz
	// least is the least time from what one source sent to what the next one does.
	least time.Duration
	// squeezes: what comes faster than it is to be shown gets timestamps close together.
	squeezes bool
	// fresh says that the next packet is of another source, or out of the order of time.
	fresh bool

	begun     bool
	begin     time.Time // of the stream, which its timestamps are held to
	first     uint32    // timestamp of then
	sequence  uint16    // of the last packet
	stamp     uint32    // of the last packet
	source    uint32    // its timestamp at the source
	squeezing bool
	gone      int64 // by how much timestamps have gone on since the first
}

// next returns number and timestamp of a packet. Numbers are continuous; timestamps are those
// of the source, moved so that they are those of the clock where the source has changed: what
// one change is off, the next one is not. Packets of a burst, which come at once, are 1 ms
// apart, until the clock has caught up with them.
func (l *line) next(p Packet, now time.Time) (sequence uint16, stamp uint32) {
	if !l.begun {
		l.begun, l.fresh, l.begin, l.first = true, true, now, p.Timestamp
		l.sequence, l.stamp = p.Sequence-1, p.Timestamp-l.ticks(l.least)
	}
	least, before := int32(l.ticks(l.least)), l.stamp
	step := int32(p.Timestamp - l.source)
	switch {
	case l.fresh, step < 0, step > int32(l.ticks(maxPause)):
		l.stamp += uint32(max(l.behind(now), least))
		l.squeezing, l.fresh = l.squeezes, false
	case step > 0 && l.squeezing:
		behind := l.behind(now)
		l.squeezing = step > behind+int32(l.ticks(onTime))
		if l.squeezing {
			step = max(min(step, behind), least)
		}
		fallthrough
	case step > 0:
		l.stamp += uint32(step)
	}
	l.gone += int64(l.stamp - before)
	l.source = p.Timestamp
	l.sequence++
	return l.sequence, l.stamp
}

// time is that of the last packet, since the first.
func (l *line) time() time.Duration {
	const micro = int64(time.Second / time.Microsecond)
	return time.Duration(l.gone*micro/l.rate) * time.Microsecond
}

// old says that a packet comes faster than it is to be heard. It is to be left out, and the next
// one is held to the clock again.
func (l *line) old(p Packet, now time.Time) bool {
	if l.squeezes || !l.begun {
		return false
	}
	step := int32(l.ticks(l.least))
	if !l.fresh {
		step = int32(p.Timestamp - l.source)
	}
	l.fresh = l.fresh || step-l.behind(now) > int32(l.ticks(ahead))
	return step-l.behind(now) > int32(l.ticks(ahead))
}

// behind is how far the last timestamp is behind the clock.
func (l *line) behind(now time.Time) int32 {
	return int32(l.first + l.ticks(now.Sub(l.begin)) - l.stamp)
}

// ticks is a time in units of timestamps, which begin anew after 32 bits. A time that goes
// backwards is none.
func (l *line) ticks(d time.Duration) uint32 {
	return uint32(int64(max(d, 0)/time.Microsecond) * l.rate / int64(time.Second/time.Microsecond))
}
