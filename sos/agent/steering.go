package agent

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// look is one look at all connections of a session together. Its counters only
// grow, whatever connections come and go.
type look struct {
	at      time.Duration // on the agent's clock
	arrived uint64        // segments that the peer's kernel has, in order or not
	sent    uint64        // segments
	losses  uint64        // times that a look at a connection found segments sent again
	idle    bool          // no connection had bytes that it could not send yet
	base    time.Duration // least round trip ever seen
	rtt     time.Duration // round trip now, of the connection that carries most
	segment int           // payload bytes of a full segment
	conns   int
}

// add takes a connection into the look. It returns how many segments have arrived
// by it since it was looked at last.
func (l *look) add(c *conn, now LinkStats) (arrived uint32) {
	l.conns++
	l.idle = l.idle && now.Unsent == 0
	l.segment = max(l.segment, now.Segment)
	if now.MinRTT > 0 && (l.base == 0 || now.MinRTT < l.base) {
		l.base = now.MinRTT
	}
	before := c.seen
	c.seen = now
	if before == (LinkStats{}) { // it may come from the pool, with a past
		return 0
	}
	arrived = now.Delivered - before.Delivered
	l.arrived += uint64(arrived)
	l.sent += uint64(now.DataSent - before.DataSent)
	if now.Retransmits > before.Retransmits {
		l.losses++
	}
	return arrived
}

// queued says whether segments wait in the path's queue: it is full then.
func (l look) queued() bool { return l.rtt > l.base+l.base/8+time.Millisecond }

// steering chooses between two congestion controls while a session runs, by
// looks at its connections.
//
// The session begins with the one that models the path (bbr): it starts fast and
// minds no loss, but it leaves a part of the path unused, because it pauses to
// look for the round trip. Several connections with the one that fills queues
// (cubic) leave nothing unused where losses are rare enough for their number.
// Whether they are can hardly be seen beforehand: bbr's own excess is lost as
// well. So when the start is over all connections are switched, on trial, unless
// the start has shown losses already. If then segments are lost although no queue
// is full, more than cubic can afford, or less is carried than at best, they are
// switched back, and the next trial waits.
type steering struct {
	filling  bool          // in use is the one that fills queues
	switches int           // so far
	why      string        // the last of them
	began    time.Duration // the present choice
	patience time.Duration // until the next trial
	best     float64       // bytes a second, the most since just before the trial

	history []look // since then, of the last span or a little more
	// Segments sent while the queue was empty, and losses among them: under bbr
	// since the choice, under cubic since the queue was last full.
	clear, lost uint64
}

const (
	// Rates are taken over so many round trips, and no less than this.
	steerTrips, steerLeast = 6, time.Second
	// The first trial comes no earlier: most transfers are over before one pays.
	firstTrial = 4 * time.Second
	// After a switch to cubic so many round trips show what bbr has left behind.
	settleTrips = 2
	// A rate that is more than so many times the one before is still growing.
	growing = 1.15
	// A trial has failed below this share of the best rate, with the queue empty,
	// and below that one in any case. Bbr's pauses cost about as much as the first.
	worse, muchWorse = 0.95, 0.9
	// So many losses are chance, of the few segments of a start and in a trial.
	startChance, chance = 1, 4
	// How long bbr is left alone after the first trial that failed, and at most.
	firstPatience, mostPatience = 30 * time.Second, 10 * time.Minute
)

// note takes a look. It reports whether the congestion control is to be set anew.
func (x *steering) note(l look) bool {
	span := max(steerTrips*l.base, steerLeast)
	if x.began == 0 {
		x.began = l.at
	}
	if x.filling && l.at-x.began < settleTrips*l.base {
		return false
	}
	x.weigh(l)
	x.history = append(x.history, l)
	for l.at-x.history[1%len(x.history)].at >= span {
		x.history = x.history[1:]
	}
	if x.filling {
		return x.judge(l, span)
	}
	return x.try(l, span)
}

// weigh counts the losses that were not an overfull queue's, which it knows by
// the queue being empty before and after. Bbr fills and empties the queue of a
// short path between two looks.
func (x *steering) weigh(l look) {
	if l.queued() && x.filling {
		x.clear, x.lost = 0, 0
	}
	n := len(x.history)
	if n == 0 || l.queued() || x.history[n-1].queued() {
		return
	}
	last := x.history[n-1]
	if x.filling || l.at-last.at < 4*l.base {
		x.clear += l.sent - last.sent
		x.lost += l.losses - last.losses
	}
}

// lossy says whether more was lost than cubic can afford, and than chance can be.
func (x *steering) lossy(l look, chance float64) bool {
	return float64(x.lost) > chance+2*x.afford(l)
}

func (x *steering) afford(l look) float64 { return affordable(x.best, l) * float64(x.clear) }

// try begins a trial when the start is over: the rate is steady, and it is the
// path that limits it.
func (x *steering) try(l look, span time.Duration) bool {
	first, middle := x.history[0], x.history[len(x.history)/2]
	if l.at-first.at < span || l.at-x.began < max(x.patience, firstTrial) || x.idle() || l.conns < 2 {
		return false
	}
	last := x.history[len(x.history)-2]
	if rate(middle, l) > growing*rate(first, middle) || rate(last, l) > growing*rate(first, l) {
		return false
	}
	x.best = rate(first, l)
	if x.lossy(l, startChance) {
		x.fail(l, fmt.Sprintf("%d losses at the start, where %d connections of cubic afford %.1f", x.lost, l.conns, x.afford(l)))
		return true
	}
	x.turn(l, true, fmt.Sprintf("%.0f Mbit/s, steady: trial", x.best*8/1e6))
	return true
}

// judge ends a trial that has failed, however long ago it began.
func (x *steering) judge(l look, span time.Duration) bool {
	if x.lossy(l, chance) {
		x.fail(l, fmt.Sprintf("%d losses with the queue empty, where %d connections of cubic afford %.1f", x.lost, l.conns, x.afford(l)))
		return true
	}
	now := rate(x.history[0], l)
	if l.at-x.history[0].at < span || x.idle() {
		return false
	}
	x.best = max(x.best, now)
	if now >= worse*x.best || (l.queued() && now >= muchWorse*x.best) {
		return false
	}
	x.fail(l, fmt.Sprintf("%.0f Mbit/s, the best was %.0f", now*8/1e6, x.best*8/1e6))
	return true
}

// idle says whether the end host, rather than the path, has limited the rate.
func (x *steering) idle() bool {
	return slices.ContainsFunc(x.history, func(l look) bool { return l.idle })
}

// fail has bbr begin anew.
func (x *steering) fail(l look, why string) {
	x.patience = min(max(2*x.patience, firstPatience), mostPatience)
	x.turn(l, false, why)
}

func (x *steering) turn(l look, filling bool, why string) {
	if x.filling != filling {
		x.switches++
	}
	x.filling, x.why = filling, why
	x.began, x.history = l.at, x.history[:0]
	x.clear, x.lost = 0, 0
}

// rate is what was carried between two looks, in bytes a second.
func rate(from, to look) float64 {
	if to.at <= from.at {
		return 0
	}
	return float64(to.arrived-from.arrived) * float64(to.segment) / (to.at - from.at).Seconds()
}

// affordable is the share of segments that may be lost for the connections, with
// cubic, to have together the whole path in flight on average: the response
// function of RFC 9438, section 5.1, or that of Reno where it gives more.
func affordable(bytesPerSecond float64, l look) float64 {
	const c, beta = 0.4, 0.7
	seconds := l.base.Seconds()
	each := max(bytesPerSecond*seconds/float64(max(l.segment, 1)*max(l.conns, 1)), 1)
	cubic := math.Pow(math.Pow(c*(3+beta)/(4*(1-beta)), 0.25)*math.Pow(seconds, 0.75)/each, 4.0/3)
	return max(cubic, 1.5/(each*each))
}
