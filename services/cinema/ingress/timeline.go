package ingress

// timeline makes the timestamps of a stream continuous. If the timestamps of a medium (picture or sound)
// jump forward or back by more than a second, it shifts the following ones so that they continue from
// the last one. Timestamps of a medium that comes back after a pause have not jumped if they fit those of
// the other one. Without timeline, ffmpeg would repeat pictures until it has caught up with the new time,
// or drop them.
type timeline struct {
	second int64 // units of timestamps per second
	bits   int   // length of timestamps, which wrap around
	media  [numMedia]timelineMedium
}

// timelineMedium is the state of one medium.
type timelineMedium struct {
	begun  bool
	last   int64 // the last timestamp after its shift
	offset int64 // what is added to timestamps that arrive
}

// shift returns the number that is to be added to the timestamp at of a medium. If both media jump by
// the same time, they are shifted by the same number.
func (t *timeline) shift(m medium, at int64) int64 {
	x := &t.media[m]
	if !x.begun {
		other := t.media[1-m]
		x.begun, x.offset, x.last = true, other.offset, t.wrap(at+other.offset)
		if other.begun && t.jumps(t.distance(x.last, other.last)) { // the media have different clocks
			x.offset = other.last - at
			x.last = other.last
		}
		return x.offset
	}
	other := t.media[1-m]
	paused := other.begun && !t.jumps(t.distance(at+x.offset, other.last))
	if !paused && t.jumps(t.distance(at+x.offset, x.last)) {
		if x.offset = other.offset; !other.begun || t.jumps(t.distance(at+x.offset, x.last)) {
			x.offset = x.last + t.second/50 - at
		}
	}
	x.last = t.wrap(at + x.offset)
	return x.offset
}

func (t *timeline) jumps(d int64) bool { return d > t.second || d < -t.second }

// distance returns a - b for timestamps that wrap around, if they differ by less than half of their
// range.
func (t *timeline) distance(a, b int64) int64 {
	unused := 64 - t.bits
	return (a - b) << unused >> unused
}

func (t *timeline) wrap(at int64) int64 { return at & (1<<t.bits - 1) }

// continuous returns the filter of ffmpeg that makes the timestamps of one medium continuous as a timeline
// does, for streams that ffmpeg reads itself. step is the expression for the time between two frames, in
// units of timestamps.
func continuous(step string) string {
	return "setpts='if(isnan(PREV_INPTS),PTS,PREV_OUTPTS+if(between((PTS-PREV_INPTS)*TB,0,1),PTS-PREV_INPTS," + step + "))'"
}
