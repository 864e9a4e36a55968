package pathrate

import "math"

const (
	// If the senders of a link deliver at least fullShare of its estimate without a queue, the estimate
	// grows by probeGain, and by the square of the last gain up to maxProbeGain if that was right.
	fullShare, probeGain, maxProbeGain = 0.9, 1.05, 1.5
	// After a sender has told what the link carries, the estimate does not grow for settleRounds, in
	// which the senders adapt to it.
	settleRounds = 2
	// After a growth that was wrong, the next waits for minProbeWait rounds, then twice as many each
	// time, up to maxProbeWait.
	minProbeWait, maxProbeWait = 4, 64
	// A link has become slower if its senders report a queue for slowRounds rounds in succession, and
	// deliver less than slowLinkShare of the estimate together.
	slowRounds, slowLinkShare = 5, 0.5
)

// LinkSample describes the senders of a link in one round.
type LinkSample struct {
	Known     float64 // the highest rate that any of their paths has shown, in bytes a second; zero for none
	Delivered float64 // bytes a second that all of them deliver
	Queued    bool    // whether all that have more to send than they may have had a queue since the last round
}

// Link estimates the capacity of a link that several senders share, from what they report in
// regular rounds. The zero value knows nothing of the link.
type Link struct {
	capacity float64 // bytes a second; zero if not known
	before   float64 // capacity before the last growth
	known    float64 // Known of the last sample
	gain     float64 // of the last growth; zero if the last round had none
	wait     int     // rounds to wait after the next growth that is wrong
	pause    int     // rounds until the next growth
	queued   int     // number of rounds with a queue in succession
}

// Capacity returns the estimated capacity in bytes a second, +Inf if it is not known.
func (l *Link) Capacity() float64 {
	if l.capacity == 0 {
		return math.Inf(1)
	}
	return l.capacity
}

// Shown returns the capacity that the link has shown, in bytes a second; zero if it is not known. It
// is less than Capacity while the senders try whether the link carries more.
func (l *Link) Shown() float64 {
	if l.gain > 0 {
		return l.before
	}
	return l.capacity
}

// Update takes the sample of a round. The senders may be limited elsewhere, each by a link of its
// own, so the estimate grows as long as they fill it without a queue.
func (l *Link) Update(s LinkSample) {
	if s.Known > max(l.known, l.capacity) {
		l.capacity, l.gain, l.pause = s.Known, 0, settleRounds
	}
	l.known = s.Known
	if l.capacity == 0 {
		if s.Queued {
			l.capacity = s.Delivered
		}
		return
	}
	l.capacity = max(l.capacity, s.Delivered)
	if s.Queued {
		l.handleQueue(s)
		return
	}
	l.queued = 0
	switch {
	case s.Delivered < fullShare*l.capacity:
		l.gain = 0
	case l.pause > 0:
		l.pause--
	default:
		if l.gain > 0 {
			l.wait = 0
		}
		l.gain = min(max(l.gain*l.gain, probeGain), maxProbeGain)
		l.before, l.capacity = l.capacity, l.capacity*l.gain
	}
}

// handleQueue handles a round in which the senders have had a queue.
func (l *Link) handleQueue(s LinkSample) {
	l.queued++
	if l.gain > 0 {
		l.capacity = max(l.before, s.Delivered)
		l.wait = min(max(2*l.wait, minProbeWait), maxProbeWait)
	} else if l.queued >= slowRounds && s.Delivered < slowLinkShare*l.capacity {
		l.capacity = s.Delivered
	}
	l.gain, l.pause = 0, l.wait
}
