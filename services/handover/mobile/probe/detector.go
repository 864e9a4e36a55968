package probe

import (
	"math"
	"time"

	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
)

// Times of the detection. Together with the probe interval they bound the time from a death to its
// detection: on an access network with a round trip of up to 30 ms, 95 of 100 deaths are detected
// within 150 ms, whichever direction has died and whatever traffic runs.
const (
	// pollBusy is how often the traffic counters are read, at least, while traffic runs. It is also
	// the silence after which a probe is sent. pollIdle is the same without traffic, which means
	// that none has run for busyFor.
	pollBusy = 20 * time.Millisecond
	pollIdle = time.Second
	busyFor  = 300 * time.Millisecond
	// busyInterval is the longest time between two probes while traffic runs. Packets that come in
	// prove nothing about the packets that leave, so traffic does not replace probes.
	busyInterval = 60 * time.Millisecond
	// probeGap is the shortest time from an unanswered probe to the next one.
	probeGap = 7 * time.Millisecond
	// idleSpan is the time from the first unanswered probe to a death without traffic. heardSpan
	// is the same while packets come in: then the answer is more likely to be queued than lost, so
	// more time is given. Long round trips, and paths that lose packets, extend both.
	idleSpan  = 72 * time.Millisecond
	heardSpan = 80 * time.Millisecond
	// A path is dead if so many probes in a row are unanswered that the probability that all of them
	// were lost by chance is below the constant chance, given the share of about lossMemory probes
	// that were lost. That takes at least minInRow and at most maxInRow probes.
	chance             = 1e-6
	minInRow, maxInRow = 4, 10
	lossMemory         = 100
	// A false alarm is a declared death of a path that had only stalled: a probe from before the
	// death is answered after it. From the second false alarm on, within calmAfter of the previous
	// one, a row needs one more probe for each alarm, up to maxFalse more, and lasts as long as the
	// path had stalled, up to maxStall. With maxStall a death is found within 600 ms. A single alarm changes nothing,
	// so that one hiccup does not delay the detection of later deaths.
	maxFalse  = 3
	maxStall  = 250 * time.Millisecond
	calmAfter = time.Minute
	// firstRTT is the assumed round trip until one was measured (RFC 6298, 2.1).
	firstRTT = time.Second
	// minWait is the shortest wait for an answer: the answering host, or this process, may be
	// delayed.
	minWait = 10 * time.Millisecond
	// maxVariance bounds the part of the wait for an answer that the round trip's variance adds: on
	// an interface that is seldom probed, one late answer affects the variance for long.
	maxVariance = 25 * time.Millisecond
	// lostAfter is the age at which a probe counts as lost.
	lostAfter = time.Second
	// minRevival is the interval between the probes of a dead path after the first ones have not
	// been answered either, unless the configured interval is longer.
	minRevival = 800 * time.Millisecond
)

// detector decides when to probe and when a path is dead. It has no clock and does no I/O.
//
// Two proofs are kept apart. A packet that comes in proves the direction towards the device. Only
// the answer to a probe proves both directions, so only an answer ends a row of unanswered probes
// or revives a dead path.
type detector struct {
	interval time.Duration // between two probes when nothing requires one sooner
	revival  time.Duration // longest interval on a dead path
	eager    bool          // probe at least every busyInterval while traffic runs
	window   *Window

	srtt, rttvar time.Duration // as in RFC 6298; zero until measured
	latest       time.Duration // latest round trip
	waiting      []sentProbe   // unanswered probes, oldest first
	loss         float64       // smoothed loss, without the losses of a dead path

	watching bool
	counted  datapath.Traffic // traffic counters at the last poll
	moved    time.Time        // when traffic was last seen
	heard    time.Time        // when a packet last came in, including answers
	answer   time.Time        // when a probe was last answered
	unsure   time.Time        // since when there is traffic that no probe has followed; zero: none

	row         int       // probes since the last answer
	first, last time.Time // when the first probe of the latest row, and the latest probe, were sent
	dead        bool
	died        time.Time     // when the path was last declared dead
	revived     time.Time     // when the path last ceased to be dead
	alarms      int           // recent false alarms
	alarmed     time.Time     // when the latest false alarm was
	stall       time.Duration // the longest stall of the path in recent false alarms
	asked       bool          // a caller has asked for a probe
	expected    time.Time     // when next expects to be called
	extended    bool          // the row was given more time because the process was delayed
}

// sentProbe is a probe that waits for its answer.
type sentProbe struct {
	number uint16
	at     time.Time
}

// newDetector returns a detector.
func newDetector(interval time.Duration, window int) *detector {
	return &detector{interval: interval, revival: max(interval, minRevival), window: NewWindow(window)}
}

// observe handles a reading of the traffic counters.
func (d *detector) observe(now time.Time, t datapath.Traffic) {
	switch {
	case !d.watching:
		d.watching = true
	case t.Sent == d.counted.Sent && t.Heard == d.counted.Heard:
		return
	default:
		if t.Heard != d.counted.Heard {
			d.heard = later(d.heard, now.Add(-t.Quiet))
		}
		d.moved = now
		if d.unsure.IsZero() {
			d.unsure = now
		}
	}
	d.counted = t
}

// resetCounters forgets the last traffic counters, so that the next poll is not compared with them.
func (d *detector) resetCounters() { d.watching, d.unsure = false, time.Time{} }

// alive records a proof that both directions work.
func (d *detector) alive(now time.Time) {
	if d.dead {
		d.revived = now
		d.window.Reset() // the losses while the path was dead say nothing about the revived one
	}
	d.heard, d.answer, d.row, d.dead, d.extended = now, now, 0, false, false
}

// sent records that a probe was sent, or that the interface refused it.
func (d *detector) sent(now time.Time, number uint16) {
	d.waiting = append(d.waiting, sentProbe{number, now})
	if d.row++; d.row == 1 {
		d.first = now
	}
	d.last, d.unsure, d.asked = now, time.Time{}, false
}

// answered records the answer to a probe. If known is false the answer does not name its probe and
// is taken for the answer to the oldest. It returns the round trip, or 0 if that is not known
// (Karn's algorithm).
func (d *detector) answered(now time.Time, number uint16, known bool) time.Duration {
	i, found := 0, len(d.waiting) > 0
	if known {
		i, found = d.find(number)
	}
	if known && found && d.dead && !d.waiting[i].at.After(d.died) {
		// The path did not lose this probe, so it was not dead but stalled. A link that died and
		// came back has lost the packets that were sent into it.
		d.alarms, d.alarmed = min(d.alarms+1, maxFalse+1), now
		d.stall = min(max(d.stall, now.Sub(d.first)), maxStall)
	}
	d.alive(now)
	if !found {
		return 0
	}
	told := known || len(d.waiting) == 1
	rtt := now.Sub(d.waiting[i].at)
	d.waiting = append(d.waiting[:i], d.waiting[i+1:]...)
	d.window.Add(false)
	d.loss -= d.loss / lossMemory
	if !told {
		return 0
	}
	d.measured(rtt)
	return rtt
}

// find returns the index of a probe that waits for its answer.
func (d *detector) find(number uint16) (int, bool) {
	for i, p := range d.waiting {
		if p.number == number {
			return i, true
		}
	}
	return 0, false
}

// measured updates the smoothed round trip and its variance (RFC 6298).
func (d *detector) measured(rtt time.Duration) {
	d.latest = rtt
	if d.srtt == 0 {
		d.srtt, d.rttvar = rtt, rtt/2
		return
	}
	d.rttvar += ((d.srtt - rtt).Abs() - d.rttvar) / 4
	d.srtt += (rtt - d.srtt) / 8
}

// next reports whether to probe now, and returns when the caller has to call next again at the latest.
// After a probe the caller calls next again at once.
func (d *detector) next(now time.Time) (probe bool, wake time.Time) {
	late := !d.expected.IsZero() && now.Sub(d.expected) >= probeGap
	d.expire(now)
	due := d.first.Add(d.pace(now)) // counted from the first probe of the row: a long round trip must not slow the pace
	switch need := d.inRow(); {
	case d.row == 0 && d.asked:
		due = now
	case d.row == 0:
		if quiet := later(d.heard, d.unsure).Add(pollBusy); !d.unsure.IsZero() && quiet.Before(due) {
			due = quiet
		}
	case d.row < need:
		due = d.last.Add(d.gap(now, need))
	case !d.dead:
		due = d.last.Add(d.wait(now))
		switch {
		case due.After(now):
		case late && !d.extended:
			d.extended = true
			due = now.Add(probeGap) // the answer may wait in its socket
		default:
			d.dead, d.died = true, now
		}
	}
	if d.dead {
		due = d.last.Add(min(probeGap<<min(d.row-minInRow+1, 20), d.revival))
	}
	probe = !due.After(now) && (d.row < d.inRow() || d.dead)
	wake = due
	if look := now.Add(d.pollInterval(now)); d.watching && look.Before(wake) {
		wake = look
	}
	if n := len(d.waiting); n > 0 {
		if lost := d.waiting[0].at.Add(lostAfter); lost.Before(wake) {
			wake = lost
		}
	}
	d.expected = wake
	return probe, wake
}

// expire counts old unanswered probes as lost.
func (d *detector) expire(now time.Time) {
	n := 0
	for ; n < len(d.waiting) && now.Sub(d.waiting[n].at) >= lostAfter; n++ {
		if !d.waiting[n].at.After(d.revived) {
			continue
		}
		d.window.Add(true)
		if !d.dead {
			d.loss += (1 - d.loss) / lossMemory
		}
	}
	d.waiting = d.waiting[n:]
}

// pace returns the time from an answered probe to the next.
func (d *detector) pace(now time.Time) time.Duration {
	if d.eager && d.busy(now) {
		return min(d.interval, busyInterval)
	}
	return d.interval
}

// gap returns the time from an unanswered probe of a row to the next one.
func (d *detector) gap(now time.Time, need int) time.Duration {
	gap, wait := probeGap, d.wait(now)
	if d.alarms > 1 {
		gap = max(gap, d.stall/(minInRow-1))
	}
	switch {
	case d.srtt == 0:
		return gap
	case d.hearing(now):
		return max(gap, (heardSpan-wait)/time.Duration(need-1))
	case d.row == 1 && !d.busy(now):
		// The first probe gets time to be answered: there is no traffic that would suffer, and
		// otherwise more than one probe would be sent each time.
		return max(gap, min(wait, idleSpan-wait-time.Duration(need-2)*probeGap))
	}
	return gap
}

// inRow returns how many probes in a row must be unanswered.
func (d *detector) inRow() int {
	if d.alarms > 0 && d.last.Sub(d.alarmed) > calmAfter {
		d.alarms, d.stall = 0, 0
	}
	n := minInRow + max(d.alarms-1, 0)
	for p := math.Pow(d.loss, float64(n)); p > chance && n < maxInRow; p *= d.loss {
		n++
	}
	return n
}

// wait returns how long to wait for the answer to the last probe of a row (as for a retransmission
// in RFC 6298). While packets come in, it follows a queue that grows faster than the smoothed
// round trip does.
func (d *detector) wait(now time.Time) time.Duration {
	rtt := d.srtt
	if d.hearing(now) {
		rtt = max(rtt, d.latest)
	}
	if rtt == 0 {
		return firstRTT
	}
	return max(rtt+min(4*d.rttvar, maxVariance), minWait)
}

// hearing reports whether traffic comes in.
func (d *detector) hearing(now time.Time) bool { return now.Sub(d.heard) < pollBusy && d.busy(now) }

// busy reports whether there has been traffic lately.
func (d *detector) busy(now time.Time) bool { return now.Sub(d.moved) < busyFor }

// pollInterval returns how often the traffic counters are read.
func (d *detector) pollInterval(now time.Time) time.Duration {
	if d.busy(now) {
		return pollBusy
	}
	return pollIdle
}

// silentSince returns when the current row of unanswered probes began. It returns zero if at most one
// probe is unanswered: its answer may still come in time.
func (d *detector) silentSince() time.Time {
	if d.row < 2 {
		return time.Time{}
	}
	return d.first
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
