package probe

import (
	"math"
	"time"

	"github.com/sluice-net/sluice/handover/mobile/datapath"
)

// Times of the detection. The first unanswered probe goes out when nothing was heard
// for lookBusy, the last one three or more `again` later, and its answer is waited for:
// a death is found 50 to 60 ms after the last packet on an access network whose round
// trip takes 10 ms, and within 95 ms where it takes 30.
const (
	// lookBusy is how often traffic is looked at, at least, while it runs, and for how
	// long nothing must have been heard before it is asked whether the way is alive;
	// lookIdle is how often without traffic, which is when none has run for busyFor: not
	// between two probes, since to wake up is what an idle daemon's time goes to.
	lookBusy = 20 * time.Millisecond
	lookIdle = time.Second
	busyFor  = 300 * time.Millisecond
	// again is the time from an unanswered probe to the next.
	again = 7 * time.Millisecond
	// A way is dead when so many probes in a row are unanswered that this is chance
	// with less than that probability, given how many of about lossMemory were lost;
	// not fewer than leastInRow and not more than mostInRow.
	chance                = 1e-6
	leastInRow, mostInRow = 4, 10
	lossMemory            = 100
	// A death that was none (something was heard within falseAlarm of it) has one
	// more in a row be needed, up to mostFalse more, and so much time between them that
	// the row is longer than the way stood still then, for calmAfter. With mostStall a
	// death is found within 600 ms.
	falseAlarm = 500 * time.Millisecond
	mostFalse  = 3
	mostStall  = 250 * time.Millisecond
	calmAfter  = 5 * time.Minute
	// firstRTT is assumed for the round trip until one was measured (RFC 6298, 2.1).
	firstRTT = time.Second
	// leastPatience is how long an answer is waited for, however short the round trip:
	// who answers, or this process, may be held up.
	leastPatience = 10 * time.Millisecond
	// mostVariance bounds what the round trip's variance adds to the wait for an answer:
	// on an interface that is seldom probed one late answer counts for long.
	mostVariance = 25 * time.Millisecond
	// lostAfter bounds how long an answer may take.
	lostAfter = time.Second
)

// detector says when to probe and when a way is dead. It has no clock and does no
// I/O. It probes each interval, as BFD does on demand and TCP at the tail: when
// traffic has run since the last probe and nothing is heard; and soon again, while
// a probe is unanswered.
type detector struct {
	interval time.Duration // between probes while nothing calls for one
	revival  time.Duration // the same at most, on a dead way
	window   *Window

	srtt, rttvar time.Duration // as TCP has them (RFC 6298); zero until measured
	waiting      []sentProbe   // for their answers, oldest first
	loss         float64       // smoothed; without what was lost by a dead way

	watching bool
	counted  datapath.Traffic // at the last look
	moved    time.Time        // when traffic was last seen to run
	heard    time.Time        // when anything was last heard
	unsure   time.Time        // since when traffic runs that no probe has followed; zero: none

	row         int       // probes since anything was heard
	first, last time.Time // of the row; of all
	dead        bool
	died        time.Time     // when it was last taken for dead
	revived     time.Time     // when it last was not any more
	alarms      int           // of late that were false
	alarmed     time.Time     // when the last of them was
	stall       time.Duration // how long the way stood still then, at most
	asked       bool          // somebody wants a probe now
	expected    time.Time     // when next wanted to be called
	spared      bool          // of the row: it was, because the process was held up
}

type sentProbe struct {
	number uint16
	at     time.Time
}

func newDetector(interval time.Duration, window int) *detector {
	return &detector{interval: interval, revival: interval, window: NewWindow(window)}
}

// look takes note of the traffic's counters.
func (d *detector) look(now time.Time, t datapath.Traffic) {
	switch {
	case !d.watching:
		d.watching = true
	case t.Sent == d.counted.Sent && t.Heard == d.counted.Heard:
		return
	default:
		if t.Heard != d.counted.Heard {
			d.hear(now.Add(-t.Quiet))
		}
		d.moved = now
		if d.unsure.IsZero() {
			d.unsure = now
		}
	}
	d.counted = t
}

// unwatch forgets the counters: those of the next look start anew.
func (d *detector) unwatch() { d.watching, d.unsure = false, time.Time{} }

// hear takes note of a sign of life.
func (d *detector) hear(now time.Time) {
	if d.dead {
		d.revived = now
		if now.Sub(d.died) < falseAlarm {
			d.alarms, d.alarmed = min(d.alarms+1, mostFalse), now
			d.stall = min(max(d.stall, now.Sub(d.first)), mostStall)
		}
		d.window.Reset() // what the dead way has lost says nothing of this one
	}
	d.heard, d.row, d.dead, d.spared = now, 0, false, false
}

// sent takes note of a probe, also of one that the interface refused.
func (d *detector) sent(now time.Time, number uint16) {
	d.waiting = append(d.waiting, sentProbe{number, now})
	if d.row++; d.row == 1 {
		d.first = now
	}
	d.last, d.unsure, d.asked = now, time.Time{}, false
}

// answered takes note of the answer to a probe; known says that the answer names
// it, else it is taken for that to the oldest. The round trip is 0 if it cannot be
// told (as in Karn's algorithm).
func (d *detector) answered(now time.Time, number uint16, known bool) time.Duration {
	d.hear(now)
	for i, p := range d.waiting {
		if known && p.number != number {
			continue
		}
		told := known || len(d.waiting) == 1
		d.waiting = append(d.waiting[:i], d.waiting[i+1:]...)
		d.window.Add(false)
		d.loss -= d.loss / lossMemory
		if !told {
			return 0
		}
		d.measured(now.Sub(p.at))
		return now.Sub(p.at)
	}
	return 0
}

func (d *detector) measured(rtt time.Duration) {
	if d.srtt == 0 {
		d.srtt, d.rttvar = rtt, rtt/2
		return
	}
	d.rttvar += ((d.srtt - rtt).Abs() - d.rttvar) / 4
	d.srtt += (rtt - d.srtt) / 8
}

// next says whether to probe now, and when to look again at the latest. After a
// probe it is called again.
func (d *detector) next(now time.Time) (probe bool, wake time.Time) {
	late := !d.expected.IsZero() && now.Sub(d.expected) >= again
	d.expire(now)
	due := d.last.Add(d.interval)
	switch need := d.inRow(); {
	case d.asked && d.row == 0:
		due = now
	case d.row == 0:
		if quiet := later(d.heard, d.unsure).Add(lookBusy); !d.unsure.IsZero() && quiet.Before(due) {
			due = quiet
		}
	case d.row < need:
		due = d.last.Add(d.gap(now))
	case !d.dead:
		due = d.last.Add(d.patience())
		switch {
		case due.After(now):
		case late && !d.spared:
			d.spared = true
			due = now.Add(again) // the answer may wait in its socket
		default:
			d.dead, d.died = true, now
		}
	}
	if d.dead {
		due = d.last.Add(min(again<<min(d.row-leastInRow+1, 20), d.revival))
	}
	probe = !due.After(now) && (d.row < d.inRow() || d.dead)
	wake = due
	if look := now.Add(d.lookEvery(now)); d.watching && look.Before(wake) {
		wake = look
	}
	if n := len(d.waiting); n > 0 {
		if lost := d.waiting[0].at.Add(d.lostAfter()); lost.Before(wake) {
			wake = lost
		}
	}
	d.expected = wake
	return probe, wake
}

// expire counts probes that nobody will answer any more as lost.
func (d *detector) expire(now time.Time) {
	n := 0
	for ; n < len(d.waiting) && now.Sub(d.waiting[n].at) >= d.lostAfter(); n++ {
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

func (d *detector) lostAfter() time.Duration { return min(d.interval, lostAfter) }

// gap is the time to the next probe of a row. Without traffic the first has time to be
// answered: nobody is in a hurry, and one more would be sent each time.
func (d *detector) gap(now time.Time) time.Duration {
	gap := max(again, d.stall/(leastInRow-1))
	if d.row == 1 && d.srtt > 0 && d.lookEvery(now) == lookIdle {
		return max(d.patience(), gap)
	}
	return gap
}

// inRow is how many probes in a row must be unanswered.
func (d *detector) inRow() int {
	if d.alarms > 0 && d.last.Sub(d.alarmed) > calmAfter {
		d.alarms, d.stall = 0, 0
	}
	n := leastInRow + d.alarms
	for p := math.Pow(d.loss, float64(n)); p > chance && n < mostInRow; p *= d.loss {
		n++
	}
	return n
}

// patience is how long the answer to the last probe of a row is waited for (as a
// retransmission in RFC 6298).
func (d *detector) patience() time.Duration {
	if d.srtt == 0 {
		return firstRTT
	}
	return max(d.srtt+min(4*d.rttvar, mostVariance), leastPatience)
}

func (d *detector) lookEvery(now time.Time) time.Duration {
	if now.Sub(d.moved) < busyFor {
		return lookBusy
	}
	return lookIdle
}

// silentSince is when the probes began that nothing has answered, if one of them
// should have been; else zero.
func (d *detector) silentSince() time.Time {
	if d.row < 2 {
		return time.Time{}
	}
	return d.first
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
