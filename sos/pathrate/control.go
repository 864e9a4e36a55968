package pathrate

import (
	"math"
	"time"
)

// Sample is one look at all connections of a path together.
type Sample struct {
	At        time.Duration // on a monotonic clock
	Delivered uint64        // bytes that the peer's kernel has, in order or not; only grows
	Lost      uint64        // bytes sent again; only grows
	RTT       time.Duration // the round trip now, smoothed; zero if not known
	MinRTT    time.Duration // the least round trip seen; zero if not known
	Grain     time.Duration // by which round trips differ without a queue, since segments wait for each other
	Idle      bool          // no connection had bytes that it could not send yet
}

// Phase is what a Control does at present.
type Phase string

// The phases. A path of which nothing is known begins with PhaseFind, another
// with PhaseTry.
const (
	PhaseFind  Phase = "find"  // the pace grows each round trip, until the path shows its rate
	PhaseTry   Phase = "try"   // sends at the known rate, which has not shown itself yet
	PhaseHold  Phase = "hold"  // sends a little below the known rate
	PhaseGrow  Phase = "grow"  // sends faster than the known rate, to see whether the path carries more
	PhaseDrain Phase = "drain" // sends slower than the known rate, until the path's queue is empty
)

const (
	// A path is held this much below its rate, so that its queue stays empty.
	holdShare = 0.99
	// A remembered rate is tried at this share of it, or at that one when it is doubtful.
	tryShare, doubtfulShare = 0.95, 0.5
	// After a queue that was ours, and after a try that was wrong.
	drainShare, retreatShare = 0.75, 0.5
	// Growth of the pace in a round trip: in the first of growing, and later. The queue of a
	// path that is as long as a round trip holds what is sent too much until it is seen.
	growFirst, growTrips, growGain = 1.1, 4, 1.5
	// While nothing is known the pace is so many times what is delivered, so that this
	// grows by growGain, too: delivered is what was sent one to two round trips ago.
	findAhead = 1.85
	// A start that has grown by less than this in so many round trips has found the rate.
	plateauGain, plateauTrips = 1.25, 3
	// Others are given way to down to this, unless GiveWay says otherwise.
	evenShare = 0.5
	// Others' queue: the pace falls and rises by so much in a round trip.
	yield, regain = 0.9, 1.05
	// And the rate by so much, down to what is delivered: it may have been taken for higher than it is,
	// but by no more than one minus fallen.
	ebb = 0.99
	// The rate has fallen when less than this share of the pace is delivered. Of a pace that is below
	// slow of the rate others take the rest for a moment: that says something of the path only when it
	// lasts for so many spans, or much is lost.
	fallen, slow, slowTrips = 0.85, 0.6, 4
	// Where more than this share of the pace is delivered, what is sent does not wait.
	enough = 0.95
	// When growing has gained nothing the next waits twice as long, up to the last.
	firstWait, mostWait = 4, 10 * time.Second
	// A queue that has stood for so many spans is not one that goes by sending less.
	floorTrips = 20
	// A start does not end by a queue before so much of the pace is delivered.
	usefulShare = 0.3
	// So much lost is not chance.
	heavyLoss = 0.1
	// The queue that counts: a fifth of the round trip up to mostJitter, as machines make between
	// them, or a sixteenth, at least so much, and a sample's grain up to one part in mostGrain: of
	// many connections each is slow.
	// One that is no longer than mildQueues of those may be others' or a loaded machine's: it ends no
	// growth while what is delivered still grows.
	leastQueue, mostJitter = 5 * time.Millisecond, 10 * time.Millisecond
	mostGrain, mildQueues  = 4, 2
	// A smoothed round trip remembers one that was long for so many grains.
	forgets = 4
	// What is delivered is measured over a round trip, at least so long.
	leastSpan = 20 * time.Millisecond
	// While nothing is known the pace is at least this, in bytes a second: slower
	// connections find their rate by themselves.
	firstPace = 5e6
	// No path is held to less, in bytes a second: below it the times of single segments
	// look like a queue, and connections do well by themselves. Its rate may be lower, down to
	// leastRate.
	leastPace, leastRate = 1.25e6, 1e3
)

// Control is one path's rate. It is not safe for concurrent use.
type Control struct {
	phase  Phase
	least  float64       // share of the rate down to which others are given way to
	rate   float64       // bytes a second; 0: not known
	last   float64       // the rate when it has last shown itself: others' traffic takes no more than a part of it away
	less   time.Duration // since when less has been delivered than sent, in PhaseHold; 0: it is not
	pace   float64       // bytes a second; 0: as fast as connections will
	sure   bool          // the rate has shown itself since New
	began  time.Duration
	began0 bool // the first look was taken
	looks  []look
	best   float64 // the most delivered, in this phase
	from   float64 // the rate when the phase began
	bestAt time.Duration
	wait   time.Duration // in PhaseHold, until the next growth
	queue  time.Duration // since when the path's queue stands, and has for a while; 0: it does not
	flow   time.Duration // since when what is delivered has been sent without a rest
	base   time.Duration // round trip that counts as an empty queue's, if it is longer than the least
	high   time.Duration // since when the round trip is longer than the least; 0: it is not
	mild   bool          // by no more than mildQueues of what counts
	shown  float64       // the most that was ever delivered
}

// look is a sample with the pace that was set before it.
type look struct {
	Sample
	pace float64
}

// New returns the control of a path whose rate is known, in bytes a second, or zero;
// a doubtful one is tried at half. Shown is what the path has carried at least.
func New(rate, shown float64, doubtful bool) *Control {
	c := &Control{least: evenShare, phase: PhaseFind, pace: max(firstPace, growGain*shown), shown: shown}
	if rate > 0 {
		rate = max(rate, leastRate)
		c.phase, c.rate, c.last, c.pace = PhaseTry, rate, rate, tryShare*rate
		if doubtful {
			c.pace = doubtfulShare * rate
		}
	}
	return c
}

// GiveWay has others be given way to, down to a share of the path's rate, above zero and at most one.
func (c *Control) GiveWay(least float64) { c.least = least }

// Pace is how fast the connections may send together, in bytes of payload a second.
func (c *Control) Pace() float64 { return max(c.pace, leastPace) }

// Rate is what the path is known to carry, in bytes of payload a second; zero if nothing is known.
func (c *Control) Rate() float64 { return c.rate }

// Shown is the most that the path has carried, in bytes a second, whether or not it could carry more.
func (c *Control) Shown() float64 { return c.shown }

// Phase is what the control does.
func (c *Control) Phase() Phase { return c.phase }

// Longer says whether the way has become longer than the least round trip that connections
// on it have ever seen.
func (c *Control) Longer() bool {
	return len(c.looks) > 0 && c.base > c.looks[len(c.looks)-1].MinRTT*5/4
}

// Sure says whether the path has shown its rate since New.
func (c *Control) Sure() bool { return c.sure }

// Look takes a sample and adapts the pace. Samples come in the order of At, some
// in each round trip.
func (c *Control) Look(s Sample) {
	if !c.began0 {
		c.began0, c.began, c.bestAt = true, s.At, s.At
	}
	if n := len(c.looks); n > 0 && s.At <= c.looks[n-1].At {
		return
	}
	c.push(s)
	if s.MinRTT <= 0 || s.RTT <= 0 || len(c.looks) < 2 {
		return
	}
	c.noteQueue(s)
	c.noteFloor(s)
	c.last = max(c.last, c.rate)
	c.shown = max(c.shown, c.delivered(c.span()))
	if s.Idle {
		c.rest(s)
		c.flow = s.At + s.RTT
		return
	}
	if c.queue != 0 && c.delivered(c.recent()) == 0 {
		return // the queue is not ours, or it is too early to tell
	}
	switch c.phase {
	case PhaseFind:
		c.find(s)
	case PhaseTry:
		c.try(s)
	case PhaseGrow:
		c.grow(s)
	case PhaseDrain:
		c.drain(s)
	case PhaseHold:
		c.hold(s)
	}
}

// rest takes what an idle path has shown all the same.
func (c *Control) rest(s Sample) {
	if c.rate > 0 {
		c.rate = max(c.rate, min(c.delivered(c.span()), c.carried()))
	}
	switch c.best, c.bestAt = 0, s.At; c.phase {
	case PhaseTry:
		c.began = s.At
	case PhaseGrow:
		c.enter(PhaseHold, s)
	}
}

// enter begins a phase.
func (c *Control) enter(p Phase, s Sample) {
	c.phase, c.began, c.best, c.bestAt, c.from = p, s.At, 0, s.At, c.rate
	switch p {
	case PhaseHold:
		c.pace = holdShare * c.rate
	case PhaseDrain:
		c.pace = drainShare * c.rate
	}
}

// ramp raises the pace by a factor in a round trip.
func (c *Control) ramp(s Sample, gain float64) {
	c.pace = min(c.Pace()*math.Pow(gain, c.trips(s)), max(findAhead*c.delivered(c.span()), growFirst*c.rate))
}

// found takes what is delivered, with the path's queue standing, for its rate.
func (c *Control) found(rate float64) {
	c.rate, c.sure = max(rate, leastRate), true
	c.last = c.rate
}

// find raises the pace with what is delivered, until the queue grows, or nothing more is delivered.
func (c *Control) find(s Sample) {
	d := c.delivered(c.span())
	if c.queue != 0 && d > usefulShare*c.paceBefore(c.span()) && !(c.mild && d > growFirst*c.deliveredBefore(c.span())) {
		c.found(c.carried())
		c.enter(PhaseDrain, s)
		return
	}
	if d > plateauGain*c.best {
		c.best, c.bestAt = d, s.At
	} else if d == 0 {
		c.bestAt = s.At
	} else if s.At-c.bestAt > plateauTrips*c.span() {
		c.found(max(d, c.best))
		c.enter(PhaseHold, s)
		c.wait = firstWait * c.span()
		return
	}
	if d > 0 {
		c.pace = max(firstPace, c.pace*math.Pow(plateauGain, -c.trips(s)), findAhead*d)
	}
}

// try waits until the first round trip has shown whether the rate is right.
func (c *Control) try(s Sample) {
	if c.queue != 0 {
		wrong := c.fell(c.delivered(c.span()))
		if wrong {
			c.found(c.carried())
		}
		c.sure = true
		if c.enter(PhaseDrain, s); wrong {
			c.pace = retreatShare * c.rate
		}
		return
	}
	if s.At-c.began < c.trip()*5/2 {
		return
	}
	if d := c.delivered(c.span()); c.fell(d) {
		if c.lost() > heavyLoss*d { // it is lost on the way, without a queue
			c.found(min(c.rate, max(d, c.rate/2)))
		} // else it is the connections' windows, which grow
		c.enter(PhaseHold, s)
		c.wait = firstWait * c.span()
		return
	}
	c.sure = true
	c.enter(PhaseGrow, s)
}

// grow raises the pace while what is delivered grows with it.
func (c *Control) grow(s Sample) {
	d := c.delivered(c.span())
	if c.queue != 0 && !(c.mild && d > enough*c.paceBefore(2*c.span())) {
		c.found(max(c.from, c.carried()))
		c.lengthen(c.rate > growFirst*c.from)
		c.enter(PhaseDrain, s)
		return
	}
	c.rate = max(c.rate, min(d, c.carried()))
	trips := float64(s.At-c.began) / float64(c.span())
	if trips > 2 && c.fell(d) {
		if c.lost() > heavyLoss*d { // somebody drops what is too much, without a queue
			c.found(min(c.rate, max(d, c.from/2)))
		}
		c.lengthen(c.rate > growFirst*c.from)
		c.enter(PhaseHold, s)
		return
	}
	gain := growGain
	if trips < growTrips {
		gain = growFirst
	}
	c.ramp(s, gain)
}

// lengthen sets the wait for the next growth.
func (c *Control) lengthen(gained bool) {
	least := firstWait * c.span()
	if c.wait = min(2*max(c.wait, least/2), mostWait); gained {
		c.wait = least
	}
}

// drain waits for the queue to be empty. While it stands the path shows its rate. A
// queue that stays is others'.
func (c *Control) drain(s Sample) {
	if d := c.carried(); d > c.rate {
		c.pace *= d / c.rate
		c.rate = d
	}
	if c.queue == 0 || s.At-c.began > 3*c.span() {
		c.enter(PhaseHold, s)
	}
}

// slower says whether the path carries less than it did: what is delivered is less than what is sent, and
// others are not the cause.
func (c *Control) slower(delivered float64, s Sample) bool {
	if !c.fell(delivered) {
		c.less = 0
		return false
	}
	if c.less == 0 {
		c.less = s.At
	}
	return c.paceBefore(2*c.span()) > slow*c.rate || c.lost() > heavyLoss*delivered || s.At-c.less >= slowTrips*c.span()
}

// hold keeps the pace below the rate, gives way to others, and looks for more now and then.
func (c *Control) hold(s Sample) {
	trips := c.trips(s)
	if c.queue == 0 {
		c.less = 0
		c.pace = min(c.pace*math.Pow(regain, trips), holdShare*c.rate)
		if s.At-c.began > max(c.wait, 2*c.span()) && c.pace >= holdShare*c.rate {
			c.enter(PhaseGrow, s)
		}
		return
	}
	if s.At-c.queue < 2*c.span() {
		return
	}
	switch d := c.delivered(c.span()); {
	case d == 0 || d >= c.rate:
	case c.slower(d, s):
		c.found(max(d, c.rate*math.Pow(retreatShare, trips)))
	default:
		c.rate = max(d, c.rate*math.Pow(ebb, trips), fallen*c.last, leastRate)
	}
	c.pace = max(c.pace*math.Pow(yield, trips), c.least*c.rate)
	c.began = s.At
}
