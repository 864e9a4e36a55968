package pathrate

import (
	"math"
	"time"
)

// Sample holds the sums over all connections of a path at one time.
type Sample struct {
	At        time.Duration // on a monotonic clock
	Delivered uint64        // bytes that the peer's kernel has received, in order or not; never decreases
	Lost      uint64        // bytes retransmitted; never decreases
	RTT       time.Duration // the present round trip, smoothed; zero if not known
	MinRTT    time.Duration // the least round trip seen; zero if not known
	Grain     time.Duration // by how much round trips vary without a queue, because segments wait for each other
	Idle      bool          // whether no connection had bytes waiting to be sent
}

// Phase is the present activity of a Control.
type Phase string

// The phases. A path about which nothing is known starts with PhaseFind, any other with
// PhaseTry.
const (
	PhaseFind  Phase = "find"  // the pace grows each round trip, until the path shows its rate
	PhaseTry   Phase = "try"   // sends at the known rate, which has not been confirmed yet
	PhaseHold  Phase = "hold"  // sends a little below the known rate
	PhaseGrow  Phase = "grow"  // sends faster than the known rate, to find out whether the path carries more
	PhaseDrain Phase = "drain" // sends slower than the known rate, until the path's queue is empty
)

const (
	// While a path's pace is held, it is this share of the rate, so that the path's queue stays
	// empty.
	holdShare = 0.99
	// A remembered rate is tried with a pace of tryShare of it, or of doubtfulShare if it is
	// doubtful.
	tryShare, doubtfulShare = 0.95, 0.5
	// After a queue that this sender has caused, the pace is drainShare of the rate until
	// the queue is empty. After a try that was faster than the path, it is retreatShare of
	// the rate.
	drainShare, retreatShare = 0.75, 0.5
	// The pace grows by growFirst per round trip at the beginning of growing. It grows by growGain
	// once growShown times the rate is delivered without a queue, or after growFirstSpans spans. If
	// the path's queue can hold the data of a round trip, it holds the excess until the queue is
	// detected.
	growFirst, growShown, growFirstSpans, growGain = 1.1, 1.05, 4, 1.5
	// While nothing is known, the pace is findAhead times the delivered rate, so that the delivered
	// rate grows by growGain per round trip, too: the data that is delivered now was sent one to
	// two round trips ago.
	findAhead = 1.85
	// The rate is found if the delivered rate has grown by less than plateauGain in plateauSpans
	// spans.
	plateauGain, plateauSpans = 1.25, 3
	// The pace gives way to other traffic down to this share of the rate, unless
	// SetMinShare sets another.
	defaultMinShare = 0.5
	// In a queue caused by others, the pace decreases by paceDecay per round trip, and recovers by
	// paceRecovery.
	paceDecay, paceRecovery = 0.9, 1.05
	// If the round trip has stayed long, the path may have become longer, or a competitor may keep the
	// queue full. The pace then recovers no faster than in round trips of this length: a competitor
	// that takes seconds to fill the queue again would otherwise always find it full.
	minRecoveryTrip = 100 * time.Millisecond
	// In such a queue, the rate decays by this factor per round trip, down to the delivered rate,
	// because it may have been overestimated, but by no more than 1 - fallenShare.
	rateDecay = 0.99
	// A rate from before others took a part of the path is kept for contestedFor. If it has not been
	// found again until then, the path is slower.
	contestedFor = 10 * time.Second
	// The rate has decreased if less than fallenShare of the pace is delivered. If the pace is
	// below slowShare of the rate, others may take the rest for a moment. In that case the path
	// counts as slower only if that lasts for slowSpans, or if much is lost.
	fallenShare, slowShare, slowSpans = 0.85, 0.6, 4
	// If more than this share of the pace is delivered, the data sent does not wait in a queue.
	enoughShare = 0.95
	// If growing has gained nothing, the wait until the next attempt to grow doubles, from
	// minWaitSpans spans up to maxWait.
	minWaitSpans, maxWait = 4, 10 * time.Second
	// A queue that has lasted for this many spans cannot be drained by sending less.
	floorSpans = 20
	// In PhaseFind, a queue does not end the phase before this share of the pace is delivered.
	usefulShare = 0.3
	// A loss of this share of the delivered bytes is not random.
	heavyLoss = 0.1
	// The round trip shows a queue if it exceeds the base by a threshold. The threshold is the
	// greatest of four values: minQueue; a fifth of the base, but at most maxJitter, which is the
	// jitter that machines cause; a sixteenth of the base; and a sample's grain, but at most the
	// base divided by grainDivisor, because with many connections each is slow. A queue of at most
	// mildQueues thresholds may be caused by others or by a loaded machine. It ends no growth while
	// the delivered rate still grows.
	minQueue, maxJitter      = 5 * time.Millisecond, 10 * time.Millisecond
	grainDivisor, mildQueues = 4, 2
	// A single long round trip influences the smoothed one for this many grains.
	smoothingGrains = 4
	// The delivered rate is measured over a round trip, but at least over this time.
	minSpan = 20 * time.Millisecond
	// While nothing is known, the pace is at least initialPace, in bytes a second: slower
	// connections find their rate by themselves.
	initialPace = 5e6
	// No pace is lower than minPace, in bytes a second. Below it, the times of single segments look
	// like a queue, and connections perform well by themselves. A rate may be lower, down to
	// minRate.
	minPace, minRate = 1.25e6, 1e3
)

// Control determines the rate and the pace of one path: how much the path carries, and how fast its
// connections may send. It is not safe for concurrent use.
type Control struct {
	phase       Phase
	minShare    float64       // share of the rate down to which the pace gives way to others
	rate        float64       // bytes a second; 0: not known
	lastShown   float64       // the rate that the path showed last; other traffic reduces rate only to a share of it
	contested   float64       // the rate before it was lowered although others, or caution, may be the cause; 0 if it was not
	contestedAt time.Duration // when contested was set
	settle      bool          // whether contested is given up once a queue drains: that queue was this sender's own
	doubtful    bool          // whether the rate was doubtful at New
	limited     bool          // whether the path has shown since New that it carries no more
	slowSince   time.Duration // time since which less has been delivered than sent, in PhaseHold; 0 if that is not so
	pace        float64       // bytes a second; 0: not limited
	sure        bool          // whether the path has shown its rate since New
	limit       float64       // the most that the pace may be, because others share the path; 0 if none are known
	phaseStart  time.Duration
	started     bool // whether the first sample was taken
	samples     []pacedSample
	best        float64 // the highest delivered rate in this phase
	startRate   float64 // the rate at the start of the phase
	lowered     bool    // whether other traffic had lowered the rate at the start of the phase
	steep       bool    // whether the pace grows by growGain, in PhaseGrow
	bestAt      time.Duration
	wait        time.Duration // time in PhaseHold until the next growth
	queueSince  time.Duration // time since which the path has had a queue that lasts; 0 if it has none
	busySince   time.Duration // time since which data has been sent without a pause
	base        time.Duration // round trip with an empty queue, if it is longer than the least one
	highSince   time.Duration // time since which the round trip has been long; 0 if it is not
	mild        bool          // whether the round trip exceeds the base by at most mildQueues thresholds
	shown       float64       // the highest delivered rate so far
}

// pacedSample is a sample together with the pace that was set before it.
type pacedSample struct {
	Sample
	pace float64
}

// New returns the control of a path. rate is the path's rate, in bytes a second; zero if it is not
// known. A doubtful rate is tried at half. shown is a rate that the path is known to have carried.
func New(rate, shown float64, doubtful bool) *Control {
	c := &Control{minShare: defaultMinShare, phase: PhaseFind, pace: max(initialPace, growGain*shown), shown: shown, doubtful: doubtful}
	if rate > 0 {
		rate = max(rate, minRate)
		c.phase, c.rate, c.lastShown, c.pace = PhaseTry, rate, rate, tryShare*rate
		if doubtful {
			c.pace = doubtfulShare * rate
		}
	}
	return c
}

// Again returns a Control for the same path after a rest, with what is known of the path. doubtful
// makes its rate doubtful even if it has been shown.
func (c *Control) Again(doubtful bool) *Control {
	rate, known := c.Known()
	next := New(rate, c.shown, doubtful || known)
	next.base = c.base
	return next
}

// SetMinShare sets the share of the path's rate, above zero and at most one, down to which
// the pace gives way to other traffic.
func (c *Control) SetMinShare(least float64) { c.minShare = least }

// SetLimit limits the pace to the given bytes a second, because other senders that are known share
// links of the path. As long as there is a limit, the control never takes what it gets beside the
// others for the path's rate: the rate does not decrease, and Sure does not become true. A limit of
// +Inf does not limit the pace. told is the path's rate as others know it; it replaces a rate that
// the path has not shown. Zero means that it is not known.
func (c *Control) SetLimit(limit, told float64) {
	before := c.usable()
	c.limit = limit
	if told > c.rate && !c.sure {
		begins := c.rate == 0
		c.rate, c.lastShown, c.doubtful = told, told, false
		if begins {
			c.phase, c.pace = PhaseTry, tryShare*told
			if n := len(c.samples); n > 0 {
				c.phaseStart = c.samples[n-1].At
			}
		}
	}
	c.rescale(before)
}

// RemoveLimit ends the effect of SetLimit.
func (c *Control) RemoveLimit() {
	before := c.usable()
	c.limit = 0
	c.rescale(before)
}

// Shared reports whether the pace has a limit because others share the path.
func (c *Control) Shared() bool { return c.limit > 0 }

// usable returns the part of the rate that this sender may use.
func (c *Control) usable() float64 {
	if c.limit > 0 {
		return min(c.rate, c.limit)
	}
	return c.rate
}

// rescale changes the pace by as much as the usable part of the rate has changed. The other senders
// make room at the same time, or have left.
func (c *Control) rescale(before float64) {
	if now := c.usable(); before > 0 && now > 0 {
		c.pace *= now / before
	}
}

// mayGrow reports whether the limit allows to find out whether the path carries more.
func (c *Control) mayGrow() bool { return c.limit == 0 || c.limit > growFirst*c.rate }

// Pace returns the rate at which all connections together may send, in bytes of payload a second.
func (c *Control) Pace() float64 {
	if c.limit > 0 {
		return max(min(c.pace, c.limit), minPace)
	}
	return max(c.pace, minPace)
}

// Queued reports whether the path has a queue that lasts.
func (c *Control) Queued() bool { return c.queueSince != 0 }

// Rate returns the rate that the path is taken to carry at present, in bytes of payload a second;
// zero if it is not known. Other traffic may have lowered it.
func (c *Control) Rate() float64 { return c.rate }

// Known returns the rate to be remembered for the next New, and reports whether it is doubtful. A
// rate from before others took a large part of the path is remembered as a doubtful one, because the
// path itself may have become slower. If that rate was doubtful before and the path has shown a lower
// one again, the lower one is remembered.
func (c *Control) Known() (rate float64, doubtful bool) {
	if c.contested > 0 && !(c.doubtful && c.limited) {
		return max(c.rate, c.contested), true
	}
	return c.rate, !c.sure && c.doubtful
}

// Shown returns the highest rate that the path has carried, in bytes a second, whether or
// not it could carry more.
func (c *Control) Shown() float64 { return c.shown }

// Steep reports whether the pace grows by much each round trip, in PhaseGrow. A congestion control
// that has adapted to a pace that grew little has to be told.
func (c *Control) Steep() bool { return c.steep }

// Phase returns the present phase.
func (c *Control) Phase() Phase { return c.phase }

// PathLengthened reports whether the path's round trip with an empty queue is now more than half as
// long again as the least round trip that its connections have measured.
func (c *Control) PathLengthened() bool {
	return len(c.samples) > 0 && c.base > c.samples[len(c.samples)-1].MinRTT*3/2
}

// Sure reports whether the path has shown its rate since New, and other traffic has not lowered it
// since then.
func (c *Control) Sure() bool {
	_, doubtful := c.Known()
	return c.sure && !doubtful
}

// Update takes a sample and adapts the pace. Samples must be in the order of At, several in
// each round trip.
func (c *Control) Update(s Sample) {
	if !c.started {
		c.started, c.phaseStart, c.bestAt = true, s.At, s.At
	}
	if n := len(c.samples); n > 0 && s.At <= c.samples[n-1].At {
		return
	}
	c.push(s)
	if s.MinRTT <= 0 || s.RTT <= 0 || len(c.samples) < 2 {
		return
	}
	c.updateQueue(s)
	c.updateBase(s)
	if s.At-c.contestedAt > contestedFor && !c.Shared() {
		c.contested, c.settle = 0, false
	}
	c.lastShown = max(c.lastShown, c.rate)
	c.shown = max(c.shown, c.delivered(c.span()))
	if s.Idle {
		c.handleIdle(s)
		c.busySince = s.At + s.RTT
		return
	}
	if c.queueSince != 0 && c.delivered(c.recent()) == 0 {
		return // the queue is not caused by this sender, or it is too early to tell
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

// handleIdle handles a sample of a path that was idle, but may have shown a rate before.
func (c *Control) handleIdle(s Sample) {
	if c.rate > 0 {
		c.rate = max(c.rate, min(c.delivered(c.span()), c.carried()))
	}
	switch c.best, c.bestAt = 0, s.At; c.phase {
	case PhaseTry:
		c.phaseStart = s.At
	case PhaseGrow:
		c.enter(PhaseHold, s)
	}
}

// enter begins a phase.
func (c *Control) enter(p Phase, s Sample) {
	c.phase, c.phaseStart, c.best, c.bestAt, c.startRate, c.steep = p, s.At, 0, s.At, c.rate, false
	c.lowered = c.rate < holdShare*max(c.lastShown, c.contested)
	switch p {
	case PhaseHold:
		c.pace = holdShare * c.usable()
	case PhaseDrain:
		c.pace, c.limited = drainShare*c.usable(), c.limited || !c.Shared()
	}
}

// ramp raises the pace by the factor gain per round trip, up to findAhead times the delivered rate or
// growFirst times the rate, whichever is greater.
func (c *Control) ramp(s Sample, gain float64) {
	c.pace = min(c.Pace()*math.Pow(gain, c.rttsPassed(s)), max(findAhead*c.delivered(c.span()), growFirst*c.rate))
}

// setRate sets the rate to one that the path has shown. If others share the path, it may carry more.
func (c *Control) setRate(rate float64) {
	if c.Shared() {
		c.rate = max(c.rate, rate, minRate)
		return
	}
	c.rate, c.sure = max(rate, minRate), true
	c.lastShown = c.rate
	if c.rate >= fallenShare*c.contested {
		c.contested, c.settle = 0, false
	}
}

// contest sets the rate to a lower one, and keeps the present one as a doubtful one. If settle is set,
// the path's next queue decides: if it drains when less is sent, others have not caused it.
func (c *Control) contest(rate float64, settle bool) {
	if c.Shared() {
		return
	}
	before := max(c.lastShown, c.contested)
	if c.contested == 0 {
		c.contestedAt = c.samples[len(c.samples)-1].At
	}
	if c.setRate(rate); c.rate < before {
		c.contested, c.settle = before, settle
	}
}

// find handles a sample in PhaseFind. It raises the pace with the delivered rate until the path has
// a queue, or until the delivered rate no longer grows.
func (c *Control) find(s Sample) {
	d := c.delivered(c.span())
	if c.queueSince != 0 && d > usefulShare*c.paceBefore(c.span()) && !(c.mild && d > growFirst*c.previouslyDelivered(c.span())) {
		c.setRate(c.carried())
		c.enter(PhaseDrain, s)
		return
	}
	if d > plateauGain*c.best {
		c.best, c.bestAt = d, s.At
	} else if d == 0 {
		c.bestAt = s.At
	} else if s.At-c.bestAt > plateauSpans*c.span() {
		c.setRate(max(d, c.best))
		c.enter(PhaseHold, s)
		c.wait = minWaitSpans * c.span()
		return
	}
	if d > 0 {
		c.pace = max(initialPace, c.pace*math.Pow(plateauGain, -c.rttsPassed(s)), findAhead*d)
	}
}

// try handles a sample in PhaseTry. It waits until the first round trips have shown whether the
// rate is right.
func (c *Control) try(s Sample) {
	tried := c.rate
	if c.doubtful {
		tried *= doubtfulShare
	}
	d := c.delivered(c.span())
	if c.queueSince != 0 {
		if c.Shared() { // the others have yet to make room
			c.enter(PhaseHold, s)
			return
		}
		wrong := c.belowPace(d)
		if wrong || c.doubtful {
			c.contest(c.carried(), true)
		}
		c.sure = true
		if c.enter(PhaseDrain, s); wrong {
			c.pace = retreatShare * c.rate
		}
		return
	}
	if s.At-c.phaseStart < c.baseRTT()*5/2 {
		return
	}
	below := c.belowPace(d)
	switch {
	case below && c.lost() > heavyLoss*d: // data is lost on the path, without a queue
		c.setRate(min(tried, max(d, tried/2)))
	case c.doubtful:
		c.contest(tried, true)
	}
	if below { // the connections' windows limit the delivered rate, and they grow
		c.enter(PhaseHold, s)
		c.wait = minWaitSpans * c.span()
		return
	}
	c.sure = c.sure || !c.Shared()
	c.enter(PhaseGrow, s)
}

// grow handles a sample in PhaseGrow. It raises the pace while the delivered rate grows with it.
func (c *Control) grow(s Sample) {
	if !c.mayGrow() {
		c.enter(PhaseHold, s)
		return
	}
	d := c.delivered(c.span())
	if c.queueSince != 0 && !(c.mild && d > enoughShare*c.paceBefore(2*c.span())) {
		c.setRate(max(c.startRate, min(d, c.carried())))
		c.setGrowWait(c.rate > growFirst*c.startRate)
		c.enter(PhaseDrain, s)
		return
	}
	c.rate = max(c.rate, min(d, c.carried()))
	trips := float64(s.At-c.phaseStart) / float64(c.span())
	dropped := c.belowPace(d) && c.lost() > heavyLoss*d // the excess is dropped without a queue
	if trips > 2 && (dropped || c.belowPace(c.delivered(2*c.span()))) {
		if dropped {
			c.contest(min(c.rate, max(d, c.startRate/2)), false)
		}
		c.setGrowWait(c.rate > growFirst*c.startRate)
		c.enter(PhaseHold, s)
		return
	}
	// What others leave at the moment does not show what the path carries.
	more := !c.lowered && c.highSince == 0 && d > growShown*c.startRate
	c.steep = c.steep || trips >= growFirstSpans || more
	gain := growFirst
	if c.steep {
		gain = growGain
	}
	c.ramp(s, gain)
}

// setGrowWait sets the wait until the next growth. gained reports whether the last growth has
// raised the rate.
func (c *Control) setGrowWait(gained bool) {
	least := minWaitSpans * c.span()
	if c.wait = min(2*max(c.wait, least/2), maxWait); gained {
		c.wait = least
	}
}

// drain handles a sample in PhaseDrain. It waits until the queue is empty. While the queue lasts,
// the path shows its rate. A queue that stays is caused by others.
func (c *Control) drain(s Sample) {
	// The delivered rate counts over two spans, because acknowledgements that have waited elsewhere
	// make it higher than the path's for a moment.
	if d := min(c.carried(), c.delivered(2*c.span())); d > c.rate && s.At-c.queueSince >= c.span() {
		c.pace *= d / c.rate
		c.rate = d
	}
	if c.queueSince == 0 && s.At-c.phaseStart < c.span() {
		// The lower pace had no effect yet, so growing had not caused the queue.
		c.wait = min(c.wait, minWaitSpans*c.span())
	}
	if c.queueSince == 0 || s.At-c.phaseStart > 3*c.span() {
		c.enter(PhaseHold, s)
	}
}

// pathSlower reports whether the path carries less than before: less is delivered than was sent,
// and other traffic is not the cause.
func (c *Control) pathSlower(delivered float64, s Sample) bool {
	if !c.belowPace(delivered) {
		c.slowSince = 0
		return false
	}
	if c.slowSince == 0 {
		c.slowSince = s.At
	}
	return c.paceBefore(2*c.span()) > slowShare*c.rate || c.lost() > heavyLoss*delivered || s.At-c.slowSince >= slowSpans*c.span()
}

// hold handles a sample in PhaseHold. It keeps the pace below the rate, gives way to other traffic,
// and periodically tries to grow.
func (c *Control) hold(s Sample) {
	trips := c.rttsPassed(s)
	if d := c.delivered(c.span()); c.belowPace(d) && c.lost() > heavyLoss*d && !c.Shared() {
		// This sender causes more loss than it would beside others that give way.
		c.contest(max(d, c.rate*math.Pow(retreatShare, trips)), false)
		c.pace, c.phaseStart = min(c.pace, holdShare*c.rate), s.At
		return
	}
	if c.queueSince == 0 {
		c.slowSince = 0
		if c.base > s.MinRTT {
			trips *= min(c.baseRTT().Seconds()/minRecoveryTrip.Seconds(), 1)
		}
		c.pace = min(c.pace*math.Pow(paceRecovery, trips), holdShare*c.usable())
		if s.At-c.phaseStart > max(c.wait, 2*c.span()) && s.At-c.busySince > c.span()*3/2 && c.pace >= holdShare*c.rate && c.mayGrow() {
			c.enter(PhaseGrow, s)
		}
		return
	}
	if s.At-c.queueSince < 2*c.span() {
		return
	}
	// The delivered rate counts over two spans, because a pause in the acknowledgements makes one span
	// look slow.
	switch d := c.delivered(2 * c.span()); {
	case d == 0 || d >= c.rate || c.Shared():
	case c.pathSlower(d, s):
		c.contest(max(d, c.rate*math.Pow(retreatShare, trips)), false)
		c.wait = minWaitSpans * c.span() // the rate may have been right, so it is tried again soon
	default:
		c.rate = max(d, c.rate*math.Pow(rateDecay, trips), fallenShare*c.lastShown, minRate)
	}
	c.pace = max(c.pace*math.Pow(paceDecay, trips), c.minShare*c.usable())
	c.phaseStart = s.At
}
