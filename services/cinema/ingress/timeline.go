package ingress

// timeline makes the times of a stream continuous. Where the times of a medium jump, forward or
// back, by more than a second, it continues where the medium was. Without it ffmpeg would repeat
// pictures until it has caught up with the new time, or drop them.
type timeline struct {
	second int64 // units per second
	bits   int   // after which times wrap around
	media  [numMedia]timelineMedium
}

// timelineMedium is the state of one medium.
type timelineMedium struct {
	begun  bool
	last   int64 // the last time, as it is sent on
	offset int64 // between a time as it arrives and as it is sent on
}

// shift returns what is to be added to the time of a medium. Media that jump together keep their
// distance.
func (t *timeline) shift(m medium, at int64) int64 {
	x := &t.media[m]
	if !x.begun {
		other := t.media[1-m]
		x.begun, x.offset, x.last = true, other.offset, t.wrap(at+other.offset)
		if other.begun && t.jumps(t.distance(x.last, other.last)) { // no time in common
			x.offset = other.last - at
			x.last = other.last
		}
		return x.offset
	}
	if t.jumps(t.distance(at+x.offset, x.last)) {
		other := t.media[1-m]
		if x.offset = other.offset; !other.begun || t.jumps(t.distance(at+x.offset, x.last)) {
			x.offset = x.last + t.second/50 - at
		}
	}
	x.last = t.wrap(at + x.offset)
	return x.offset
}

func (t *timeline) jumps(d int64) bool { return d > t.second || d < -t.second }

// distance returns a - b, if that is less than half of what a time can be.
func (t *timeline) distance(a, b int64) int64 {
	unused := 64 - t.bits
	return (a - b) << unused >> unused
}

func (t *timeline) wrap(at int64) int64 { return at & (1<<t.bits - 1) }
