package media

import "time"

const (
	// minPictureStep is the time in the stream between two pictures that arrive faster than they
	// are to be shown.
	minPictureStep = time.Millisecond
	// audioPacketTime is the duration of a packet of sound in the house format.
	audioPacketTime = 20 * time.Millisecond
	// liveTolerance is how far ahead of the clock a picture may be and still count as live.
	liveTolerance = 10 * time.Millisecond
	// maxAudioLead is how far sound may be ahead of the clock: as much as a producer sends at
	// once. A longer lead would delay the sound for as long as the channel is shown.
	maxAudioLead = 120 * time.Millisecond
	// maxDrift is how far the stream may be from the clock before it is aligned to it again. It is
	// further if a producer was away, or if its timestamps have jumped.
	maxDrift = time.Second
)

// stamper assigns sequence numbers and timestamps to one medium of the stream.
type stamper struct {
	rate int64 // clock rate of the timestamps, in Hz
	// minStep is the least time between the last packet of one source and the first of the
	// next.
	minStep time.Duration
	// compresses reports whether packets that arrive faster than they are to be shown get
	// timestamps that are close together.
	compresses bool
	// resync reports whether the next packet is to be aligned to the clock, because it is from
	// another source or the time has jumped.
	resync bool

	started     bool
	startedAt   time.Time // start of the stream, to which timestamps are aligned
	firstStamp  uint32    // timestamp at startedAt
	sequence    uint16    // of the last packet
	stamp       uint32    // of the last packet
	sourceStamp uint32    // the last packet's timestamp at its source
	compressing bool
	elapsed     int64 // ticks since the first timestamp
}

// next returns the sequence number and the timestamp of a packet in the stream. Sequence numbers are
// continuous. Timestamps are those of the source, shifted so that they match the clock at each change
// of source, and when they have drifted from it by more than maxDrift. So the errors of several changes
// do not add up. The timestamps of pictures of a burst, which arrive at once, are 1 ms apart until the
// clock has caught up with them.
func (st *stamper) next(p Packet, now time.Time) (sequence uint16, stamp uint32) {
	if !st.started {
		st.started, st.resync, st.startedAt, st.firstStamp = true, true, now, p.Timestamp
		st.sequence, st.stamp = p.Sequence-1, p.Timestamp-st.ticks(st.minStep)
	}
	least, before := int32(st.ticks(st.minStep)), st.stamp
	step := int32(p.Timestamp - st.sourceStamp)
	switch {
	case st.resync, step < 0, st.drifts(step, now):
		st.stamp += uint32(max(st.behind(now), least))
		st.compressing, st.resync = st.compresses, false
	case step > 0 && st.compressing:
		behind := st.behind(now)
		st.compressing = step > behind+int32(st.ticks(liveTolerance))
		if st.compressing {
			step = max(min(step, behind), least)
		}
		fallthrough
	case step > 0:
		st.stamp += uint32(step)
	}
	st.elapsed += int64(st.stamp - before)
	st.sourceStamp = p.Timestamp
	st.sequence++
	return st.sequence, st.stamp
}

// drifts reports whether the stream would be too far from the clock if its timestamp increased by step,
// other than between packets of one picture. In a burst, the clock determines the timestamps, and not
// the source.
func (st *stamper) drifts(step int32, now time.Time) bool {
	ahead, most := int64(step)-int64(st.behind(now)), int64(st.ticks(maxDrift))
	return step != 0 && (ahead < -most || ahead > most && !st.compressing)
}

// streamTime returns the time in the stream from the first packet to the last one.
func (st *stamper) streamTime() time.Duration {
	const micro = int64(time.Second / time.Microsecond)
	return time.Duration(st.elapsed*micro/st.rate) * time.Microsecond
}

// tooEarly reports whether a packet of sound is too far ahead of the clock. The caller then omits the
// packet, and the next one is aligned to the clock again.
func (st *stamper) tooEarly(p Packet, now time.Time) bool {
	if st.compresses || !st.started {
		return false
	}
	step := int32(st.ticks(st.minStep))
	if !st.resync {
		step = int32(p.Timestamp - st.sourceStamp)
	}
	st.resync = st.resync || step-st.behind(now) > int32(st.ticks(maxAudioLead))
	return step-st.behind(now) > int32(st.ticks(maxAudioLead))
}

// behind returns how far the last timestamp is behind the clock, in ticks.
func (st *stamper) behind(now time.Time) int32 {
	return int32(st.firstStamp + st.ticks(now.Sub(st.startedAt)) - st.stamp)
}

// ticks converts a time to ticks, the units of timestamps. The result wraps around after 32 bits.
// Negative times become zero.
func (st *stamper) ticks(d time.Duration) uint32 {
	return uint32(int64(max(d, 0)/time.Microsecond) * st.rate / int64(time.Second/time.Microsecond))
}
