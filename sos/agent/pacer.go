package agent

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/sluice-net/sluice/sos/agentapi"
	"github.com/sluice-net/sluice/sos/pathrate"
)

const (
	// A path is looked at so many times in a round trip, but no more often than this.
	looksPerTrip, leastLook = 8, 5 * time.Millisecond
	// Looking takes no more than one part in so many of the time, but it is done so often at least.
	lookShare, mostPause = 20, 500 * time.Millisecond
	// A round trip that is longer has not been measured.
	mostTrip = time.Minute
	// Where nobody sends, or the path is short, it is looked at so often.
	idleLook = 50 * time.Millisecond
	// A path on which nobody has sent for so long has its rate tried again.
	quietAfter = time.Second
	// After so long a remembered rate is doubtful.
	doubtfulAfter = 10 * time.Minute
	// What segments of the usual size carry, of a link's rate.
	payloadShare = 0.955
	// The connections that a session is expected to send by.
	usualConns = 2
	// What a connection needs is smoothed: each look counts so much.
	demandShare = 0.2
	// Round trips differ by so many segments at a connection's pace.
	grainSegments = 4
	// A pace is set anew when it changes by more than this share.
	paceStep = 0.02
)

// pacer holds what is sent on one path, to a peer's data port or from an own one,
// to the path's rate, and divides that among the sessions.
type pacer struct {
	a *Agent

	mu        sync.Mutex // a leaf
	control   *pathrate.Control
	known     time.Time // when the path has last shown its rate
	declared  time.Time // when the controller has last told the rate, until the path has shown its own; zero for never
	rtt       time.Duration
	queue     time.Duration // round trip beyond that, at the last look
	segment   int
	conns     map[*conn]*paced
	delivered uint64
	lost      uint64
	sending   int               // sessions that had more to send than they could, at the last look
	weight    float64           // theirs together
	joined    map[*session]bool // and those whose connections have come since
	wake      chan struct{}     // a connection has come
	sent      time.Time         // when somebody has last sent
	running   bool
	active    bool          // somebody sent at the last look
	took      time.Duration // the last look
}

// paced is what a pacer notes of one connection.
type paced struct {
	seen    LinkStats
	bytes   uint64    // of its session, at the last look
	at      time.Time // when it was last looked at
	busy    time.Time // when it has last sent
	waiting bool      // it had bytes that it could not send yet
	rested  bool      // it was not looked at
	payload payload
	rate    float64 // bytes a second that it sends, while it has no more to send
	pace    float64 // as set
}

func newPacer(a *Agent) *pacer {
	return &pacer{a: a, conns: map[*conn]*paced{}, joined: map[*session]bool{}, wake: make(chan struct{}, 1)}
}

// add takes a connection in, and gives it a pace to begin with.
func (p *pacer) add(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.renew(now)
	if c.s.params.Share == agentapi.ShareAll {
		return
	}
	own := &paced{at: now, busy: now, bytes: c.s.out.bytes.Load()}
	own.seen, _ = c.s.stats(c.net)
	p.conns[c] = own
	if own.seen.MinRTT >= shortPath && own.seen.MinRTT < mostTrip {
		p.joined[c.s] = true
		n, all := p.sending+len(p.joined), p.weight
		for s := range p.joined {
			all += s.weight()
		}
		pace := p.control.Pace() * c.s.weight() / all
		p.set(c, own, pace/usualConns)
		text := p.began(pace, n)
		c.s.start.CompareAndSwap(nil, &text)
	}
	if !p.running {
		p.running = true
		p.a.wg.Go(p.run)
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// remove lets a connection go, at no pace.
func (p *pacer) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own := p.conns[c]; own != nil && own.pace > 0 {
		p.set(c, own, math.Inf(1))
	}
	delete(p.conns, c)
}

// renew has the rate of a path tried again on which nobody has sent for a while.
func (p *pacer) renew(now time.Time) {
	if p.control == nil || !p.active && now.Sub(p.sent) > quietAfter {
		rate, shown := 0.0, 0.0
		if p.control != nil {
			rate, shown = p.control.Rate(), p.control.Shown()
		}
		p.control = pathrate.New(rate, shown, p.doubtful(now))
	}
	p.sent = now
}

// doubtful says whether the path has not shown its rate for a while.
func (p *pacer) doubtful(now time.Time) bool {
	last := p.known
	if p.declared.After(last) {
		last = p.declared
	}
	return now.Sub(last) > doubtfulAfter
}

// began says how fast a session begins, as one of n, and why.
func (p *pacer) began(pace float64, n int) string {
	mbit := func(rate float64) float64 { return rate * 8 / 1e6 }
	why := "nothing is known of the path"
	if r := p.control.Rate(); r > 0 {
		why = fmt.Sprintf("the path carries %.1f", mbit(r))
	}
	if n > 1 {
		why += fmt.Sprintf(", shared by %d sessions", n)
	}
	return fmt.Sprintf("%.1f Mbit/s: %s", mbit(pace), why)
}

// paceOf is what a connection may send, in bytes a second; zero if nothing holds it.
func (p *pacer) paceOf(c *conn) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own := p.conns[c]; own != nil && !math.IsInf(own.pace, 1) {
		return uint64(own.pace)
	}
	return 0
}

// told takes what the controller knows of the path, where nobody here has seen it: what is free there, which
// is another each time.
func (p *pacer) told(path agentapi.Path) {
	if path.Rate == 0 || path.RTT == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, shown := time.Now(), 0.0
	switch {
	case p.control == nil || p.control.Rate() == 0:
	case p.declared.IsZero():
		return
	case now.Sub(p.sent) <= quietAfter: // what is free now is free of what has just been sent, too
		p.declared = now
		return
	}
	if p.control != nil {
		shown = p.control.Shown()
	}
	p.control = pathrate.New(float64(path.Rate)/8*payloadShare, shown, false)
	p.declared, p.sent, p.rtt = now, now, time.Duration(path.RTT)
	if p.segment == 0 {
		p.segment = segment
	}
}

// window is how many segments each of so many connections should send in the first round trip; zero
// if the path's rate is not known.
func (p *pacer) window(conns int) int {
	in := p.inFlight()
	p.mu.Lock()
	defer p.mu.Unlock()
	return in / max(p.segment, 1) / max(conns, usualConns)
}

// inFlight is how many bytes the path holds at its known rate.
func (p *pacer) inFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control == nil {
		return 0
	}
	return int(max(p.control.Rate(), p.control.Shown()) * p.rtt.Seconds())
}

// run looks at the path as long as there are connections.
func (p *pacer) run() {
	t := time.NewTimer(0)
	defer t.Stop()
	var last time.Time
	for {
		select {
		case <-t.C:
		case <-p.wake:
			if early := p.pause() - time.Since(last); early > 0 {
				t.Reset(early)
				continue
			}
		case <-p.a.ctx.Done():
			return
		}
		next, more := p.look()
		if !more {
			return
		}
		last = time.Now()
		t.Reset(next)
	}
}

// pause is how long the path is left alone after a look, however many connections come.
func (p *pacer) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return pauseAfter(p.took)
}

// pauseAfter is how long to wait at least after a look that has taken so long.
func pauseAfter(took time.Duration) time.Duration {
	return min(max(leastLook, lookShare*took), mostPause)
}

// look takes a look at the connections, and paces them. It says when to look again, if at all.
func (p *pacer) look() (next time.Duration, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.joined)
	if len(p.conns) == 0 {
		p.running, p.active, p.sending, p.weight = false, false, 0, 0
		return 0, false
	}
	now := time.Now()
	defer func() { p.took = time.Since(now) }()
	s, sending := p.sample(now)
	switch {
	case !sending || s.MinRTT == 0:
		p.active, p.sending, p.weight = false, 0, 0
		return idleLook, true
	case s.MinRTT < shortPath:
		p.active, p.sending, p.weight = false, 0, 0
		p.free()
		return idleLook, true
	}
	p.renew(now)
	p.active, p.rtt, p.queue = true, s.MinRTT, max(s.RTT-s.MinRTT, 0)
	p.control.GiveWay(p.least())
	before := p.control.Phase()
	p.control.Look(s)
	if p.control.Phase() == pathrate.PhaseGrow && before != pathrate.PhaseGrow {
		p.restart()
	}
	if p.control.Sure() && !s.Idle {
		p.known, p.declared = now, time.Time{}
	}
	p.divide(now)
	return max(min(s.MinRTT/looksPerTrip, mostPause), pauseAfter(time.Since(now))), true
}

// free lets connections of a path that has turned out to be short go at no pace.
func (p *pacer) free() {
	for c, own := range p.conns {
		if own.pace > 0 && !math.IsInf(own.pace, 1) {
			p.set(c, own, math.Inf(1))
		}
	}
}

// restart has bbr begin anew where it is used: it has stayed within the pace, and would
// follow it upwards only now and then. On a way that has become longer it would keep to a
// window for the shorter one, each time for ten seconds more: there the pace alone holds
// what is sent.
func (p *pacer) restart() {
	for c, own := range p.conns {
		if !own.waiting || !c.s.congestion.models() {
			continue
		}
		if p.control.Longer() {
			_ = c.s.transport().Steer(c.net, p.a.congestion.local)
		} else {
			_ = c.s.congestion.afresh(c.net) // a connection that fails is seen to fail elsewhere
		}
	}
}

// grain is for how long segments wait for each other on a connection: the kernel sends two at a
// time, and acknowledges two at once.
func grain(segment int, pace float64) time.Duration {
	if pace <= 0 {
		return 0
	}
	return time.Duration(grainSegments * float64(segment) / pace * float64(time.Second))
}

// sample looks at those connections that may have sent.
func (p *pacer) sample(now time.Time) (s pathrate.Sample, sending bool) {
	s.At, s.Idle = time.Duration(p.a.now()), true
	most := uint32(0)
	for c, own := range p.conns {
		bytes := c.s.out.bytes.Load()
		if !own.waiting && bytes == own.bytes && now.Sub(own.busy) > max(4*p.rtt, idleLook) {
			own.rested = true
			continue
		}
		stats, err := c.s.stats(c.net)
		if err != nil {
			continue
		}
		if own.rested {
			own.payload = payload{}
		}
		arrived := stats.Delivered - own.seen.Delivered
		own.payload.sent(&own.seen, &stats)
		bytesArrived := float64(arrived) * own.payload.average(stats.Segment)
		if own.rested { // what else has arrived meanwhile were frames of a few bytes, over a long time
			own.rested, bytesArrived = false, min(bytesArrived, float64(bytes-own.bytes))
		}
		p.delivered += uint64(bytesArrived)
		p.lost += (stats.Retransmits - own.seen.Retransmits) * uint64(stats.Segment)
		if arrived > 0 || bytes != own.bytes {
			own.busy, sending = now, true
		}
		own.waiting, own.bytes, own.seen = stats.Unsent > 0, bytes, stats
		if passed := now.Sub(own.at).Seconds(); passed > 0 {
			own.rate += demandShare * (bytesArrived/passed - own.rate)
		}
		own.at = now
		s.Idle = s.Idle && !own.waiting
		sending = sending || own.waiting
		if arrived >= most && stats.RTT > 0 {
			most, s.RTT, s.Grain, p.segment = arrived, stats.RTT, grain(stats.Segment, own.pace), stats.Segment
		}
		if 0 < stats.MinRTT && stats.MinRTT < mostTrip && (s.MinRTT == 0 || stats.MinRTT < s.MinRTT) {
			s.MinRTT = stats.MinRTT
		}
	}
	s.Delivered, s.Lost = p.delivered, p.lost
	return s, sending
}
