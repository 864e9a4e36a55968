package agent

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/pathrate"
)

const (
	// A path is updated updatesPerRTT times per round trip, but at most once in minUpdateInterval.
	updatesPerRTT, minUpdateInterval = 8, 5 * time.Millisecond
	// Updates may take at most the fraction 1/updateShare of the time, but there is at least one in
	// maxUpdateInterval.
	updateShare, maxUpdateInterval = 20, 500 * time.Millisecond
	// A round trip of maxRTT or longer does not count as a measurement.
	maxRTT = time.Minute
	// A path is updated at idleInterval if no session sends on it, or if it is short.
	idleInterval = 50 * time.Millisecond
	// After quietAfter without traffic, a path's rate is tried again.
	quietAfter = time.Second
	// After doubtfulAfter without a confirmation, a rate is doubtful.
	doubtfulAfter = 10 * time.Minute
	// If the controller's limit allows a pace that is higher by this factor, bbr is restarted, because
	// it would raise its own rate only now and then.
	fasterPace = 1.2
	// A session is expected to send on expectedConns connections.
	expectedConns = 2
	// The demand of a connection is smoothed. demandShare is the weight of each update.
	demandShare = 0.2
	// Round trips vary by the time that grainSegments segments take at a connection's pace.
	grainSegments = 4
	// A pace is set again only if it changes by more than paceStep of its value.
	paceStep = 0.02
)

// pacer limits the traffic on one path to the path's rate, and divides the rate among the sessions.
// A path leads to a data port of a peer, or from a data port of this agent.
type pacer struct {
	a *Agent

	mu           sync.Mutex // a leaf: nothing else is locked under it
	control      *pathrate.Control
	shownAt      time.Time // when the path last showed its rate
	declared     time.Time // when the controller last declared the rate, until the path shows its own; zero for never
	restored     bool      // whether the rate is from the file, until the path shows its own
	loss         lossShare
	rtt          time.Duration
	queue        time.Duration // how much longer the round trip was at the last update
	queued       bool          // whether the path has had a queue that lasts since setLimit
	limit        limit
	segment      int
	conns        map[*conn]*pacedConn
	delivered    uint64
	lost         uint64
	sending      int           // number of sessions that had more to send at the last update than they could
	competing    competitors   // these sessions, and those whose connections were added since then
	wake         chan struct{} // signals that a connection was added
	sent         time.Time     // when a session last sent
	running      bool
	active       bool          // whether a session sent at the last update
	lastDuration time.Duration // duration of the last update
}

// pacedConn is the state that a pacer keeps for one connection.
type pacedConn struct {
	seen    ConnStats
	bytes   uint64    // bytes that the session had sent at the last update
	at      time.Time // when the connection was last sampled
	busy    time.Time // when the connection last sent
	waiting bool      // whether the connection had bytes waiting to be sent
	rested  bool      // whether the connection was left out of the last samples
	payload segmentPayload
	rate    float64 // smoothed rate of delivery, in bytes a second
	pace    float64 // the pace that was set
}

func newPacer(a *Agent) *pacer {
	return &pacer{a: a, conns: map[*conn]*pacedConn{}, wake: make(chan struct{}, 1)}
}

// add adds a connection and sets its initial pace.
func (p *pacer) add(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.retryRate(now)
	if c.s.params.Share == agentapi.ShareAll {
		return
	}
	own := &pacedConn{at: now, busy: now, bytes: c.s.out.bytes.Load()}
	own.seen, _ = c.s.stats(c.net)
	p.conns[c] = own
	if own.seen.MinRTT >= shortPath && own.seen.MinRTT < maxRTT {
		p.competing.add(c.s)
		pace := p.control.Pace() * p.competing.share(c.s)
		p.setPace(c, own, pace/expectedConns)
		text := p.describeStart(pace, len(p.competing.sessions), c.s.params.Fairness)
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

// remove removes a connection and its pace.
func (p *pacer) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own := p.conns[c]; own != nil && own.pace > 0 {
		p.setPace(c, own, math.Inf(1))
	}
	delete(p.conns, c)
}

// retryRate makes the rate of a path be tried again if no session has sent on the path for
// quietAfter.
func (p *pacer) retryRate(now time.Time) {
	switch {
	case p.control == nil:
		p.control = pathrate.New(0, 0, false)
		p.applyLimit(now)
	case !p.active && now.Sub(p.sent) > quietAfter:
		p.control = p.control.Again(p.expired(now))
		p.applyLimit(now)
	}
	p.sent = now
}

// expired reports whether the path has not shown its rate for doubtfulAfter.
func (p *pacer) expired(now time.Time) bool {
	last := p.shownAt
	if p.declared.After(last) {
		last = p.declared
	}
	return now.Sub(last) > doubtfulAfter
}

// known returns the rate of the path in bytes a second, and reports whether it is doubtful; the rate
// is zero if it is not known.
func (p *pacer) known(now time.Time) (rate float64, doubtful bool) {
	if p.control == nil {
		return 0, false
	}
	rate, doubtful = p.control.Known()
	return rate, rate > 0 && (doubtful || p.expired(now))
}

// source returns how the path's rate was learned.
func (p *pacer) source() agentapi.RateSource {
	switch {
	case p.control == nil || p.control.Rate() == 0:
		return ""
	case !p.declared.IsZero():
		return agentapi.SourceDeclared
	case p.restored:
		return agentapi.SourceFile
	}
	return agentapi.SourceMeasured
}

var sourceTexts = map[agentapi.RateSource]string{
	agentapi.SourceMeasured: "as measured", agentapi.SourceDeclared: "as declared by the controller", agentapi.SourceFile: "as the file says",
}

// describeStart describes the pace at which a session starts, as one of n sessions that share
// the path, and the reason.
func (p *pacer) describeStart(pace float64, n int, by agentapi.Fairness) string {
	mbit := func(rate float64) float64 { return rate * 8 / 1e6 }
	why := "nothing is known of the path"
	if rate, doubtful := p.known(time.Now()); rate > 0 {
		why = fmt.Sprintf("the path carries %.1f, %s", mbit(rate), sourceTexts[p.source()])
		if doubtful && p.control.Phase() == pathrate.PhaseTry {
			why += ", doubtful and tried at half"
		}
	}
	if n > 1 {
		why += fmt.Sprintf(", shared by %d sessions", n)
		if by == agentapi.FairnessClient {
			why += ", fairly by client"
		}
	}
	if p.control.Shared() {
		why += ", shared with other agents"
	}
	return fmt.Sprintf("%.1f Mbit/s: %s", mbit(pace), why)
}

// paceOf returns the rate at which a connection may send, in bytes a second; zero if it is not
// paced.
func (p *pacer) paceOf(c *conn) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own := p.conns[c]; own != nil && !math.IsInf(own.pace, 1) {
		return uint64(own.pace)
	}
	return 0
}

// setDeclared sets the rate and the round trip that the controller declares for the path, unless
// the path has shown its rate to this agent. The declared rate is the capacity that is free at
// present, so each declaration may be different.
func (p *pacer) setDeclared(path agentapi.Path) {
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
	case now.Sub(p.sent) <= quietAfter: // the free capacity does not include what this agent uses itself
		p.declared = now
		return
	}
	if p.control != nil {
		shown = p.control.Shown()
	}
	p.control = pathrate.New(float64(path.Rate)/8*agentapi.PayloadShare, shown, false)
	p.declared, p.restored, p.sent, p.rtt = now, false, now, time.Duration(path.RTT)
	p.applyLimit(now)
	if p.segment == 0 {
		p.segment = segment
	}
}

// initialWindow returns the number of segments that each of conns connections should send in the
// first round trip.
func (p *pacer) initialWindow(conns int) int {
	in := p.bdp()
	p.mu.Lock()
	defer p.mu.Unlock()
	segments := in / max(p.segment, 1)
	if p.control == nil || p.control.Rate() == 0 {
		segments = max(segments, unknownInitCwnd*expectedConns)
	}
	return segments / max(conns, expectedConns)
}

// bdp returns the bandwidth-delay product of the path at its known rate, in bytes.
func (p *pacer) bdp() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control == nil {
		return 0
	}
	return int(max(p.control.Rate(), p.control.Shown()) * p.rtt.Seconds())
}

// run updates the path as long as there are connections.
func (p *pacer) run() {
	t := time.NewTimer(0)
	defer t.Stop()
	var last time.Time
	for {
		select {
		case <-t.C:
		case <-p.wake:
			if left := p.minInterval() - time.Since(last); left > 0 {
				t.Reset(left)
				continue
			}
		case <-p.a.ctx.Done():
			return
		}
		next, more := p.update()
		if !more {
			return
		}
		last = time.Now()
		t.Reset(next)
	}
}

// minInterval returns the least time to wait after an update, even if connections are added
// meanwhile.
func (p *pacer) minInterval() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return intervalAfter(p.lastDuration)
}

// intervalAfter returns the least time to wait after an update whose duration was took.
func intervalAfter(took time.Duration) time.Duration {
	return min(max(minUpdateInterval, updateShare*took), maxUpdateInterval)
}

// update samples the connections and sets their paces. It returns the time until the next
// update, and false if there are no connections.
func (p *pacer) update() (next time.Duration, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.competing = competitors{}
	if len(p.conns) == 0 {
		p.running, p.active, p.sending = false, false, 0
		return 0, false
	}
	now := time.Now()
	defer func() { p.lastDuration = time.Since(now) }()
	s, sending := p.sample(now)
	switch {
	case !sending || s.MinRTT == 0:
		p.active, p.sending = false, 0
		return idleInterval, true
	case s.MinRTT < shortPath:
		p.active, p.sending = false, 0
		p.unpace()
		return idleInterval, true
	}
	p.retryRate(now)
	if !p.limit.until.IsZero() && !now.Before(p.limit.until) { // the controller has ended
		p.applyLimit(now)
	}
	p.active, p.rtt, p.queue = true, s.MinRTT, max(s.RTT-s.MinRTT, 0)
	p.control.SetMinShare(p.minShare())
	before, steep := p.control.Phase(), p.control.Steep()
	p.control.Update(s)
	p.queued = p.queued || p.control.Queued()
	if grows := p.control.Phase() == pathrate.PhaseGrow && before != pathrate.PhaseGrow; grows || p.control.Steep() && !steep {
		p.restart()
	}
	if p.control.Sure() && !s.Idle && !p.control.Shared() {
		p.shownAt, p.declared, p.restored = now, time.Time{}, false
	}
	p.divide(now)
	return max(min(s.MinRTT/updatesPerRTT, maxUpdateInterval), intervalAfter(time.Since(now))), true
}

// unpace removes the paces of connections if their path has turned out to be short.
func (p *pacer) unpace() {
	for c, own := range p.conns {
		if own.pace > 0 && !math.IsInf(own.pace, 1) {
			p.setPace(c, own, math.Inf(1))
		}
	}
}

// restart restarts bbr on the connections that use it: bbr has stayed within the pace, and would
// raise its own rate only now and then.
func (p *pacer) restart() {
	if p.control.PathLengthened() {
		return
	}
	for c, own := range p.conns {
		if own.waiting && c.s.congestion.modelsPath() {
			_ = c.s.congestion.restart(c.net) // other code detects a connection that fails
		}
	}
}

// lengthened reports whether the path has become so much longer that bbr must not be restarted. A bbr
// that starts takes the least round trip of the last five minutes (net.ipv4.tcp_min_rtt_wlen) for the
// path's, and keeps that for ten seconds. It sends twice what the path holds by that round trip, which is
// too little for a path that has become much longer. Without a restart it learns the new round trip
// once, within ten seconds.
func (p *pacer) lengthened() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.control != nil && p.control.PathLengthened()
}

// ackGrain returns how long segments of a connection wait for each other, because the kernel sends
// two at a time, and acknowledges two at once.
func ackGrain(segment int, pace float64) time.Duration {
	if pace <= 0 {
		return 0
	}
	return time.Duration(grainSegments * float64(segment) / pace * float64(time.Second))
}

// sample samples the connections that may have sent since the last update, and reports whether any
// has.
func (p *pacer) sample(now time.Time) (s pathrate.Sample, sending bool) {
	s.At, s.Idle = time.Duration(p.a.now()), true
	most := uint32(0)
	for c, own := range p.conns {
		bytes := c.s.out.bytes.Load()
		if !own.waiting && bytes == own.bytes && now.Sub(own.busy) > max(4*p.rtt, idleInterval) {
			own.rested = true
			continue
		}
		stats, err := c.s.stats(c.net)
		if err != nil {
			continue
		}
		if own.rested {
			own.payload = segmentPayload{}
		}
		arrived := stats.Delivered - own.seen.Delivered
		own.payload.record(&own.seen, &stats)
		bytesArrived := float64(arrived) * own.payload.average(stats.Segment)
		if own.rested { // since the last sample, only frames of a few bytes arrived besides these
			own.rested, bytesArrived = false, min(bytesArrived, float64(bytes-own.bytes))
		}
		bytesLost := (stats.Retransmits - own.seen.Retransmits) * uint64(stats.Segment)
		p.delivered += uint64(bytesArrived)
		p.lost += bytesLost
		p.loss.note(bytesArrived, float64(bytesLost))
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
			most, s.RTT, s.Grain, p.segment = arrived, stats.RTT, ackGrain(stats.Segment, own.pace), stats.Segment
		}
		if 0 < stats.MinRTT && stats.MinRTT < maxRTT && (s.MinRTT == 0 || stats.MinRTT < s.MinRTT) {
			s.MinRTT = stats.MinRTT
		}
	}
	s.Delivered, s.Lost = p.delivered, p.lost
	return s, sending
}

// carried returns the rate that is delivered at present on all connections, in bytes a second.
func (p *pacer) carried() float64 {
	sum := 0.0
	for _, own := range p.conns {
		if p.active && !own.rested {
			sum += own.rate
		}
	}
	return sum
}

// lossSpan is the number of bytes over which a path's loss is averaged.
const lossSpan = 16 << 20

// lossShare computes the share of a path's bytes that were retransmitted, over about the last lossSpan
// bytes.
type lossShare struct {
	share   float64
	counted float64 // bytes that share is based on, at most lossSpan
	lost    float64 // bytes retransmitted since the last bytes were delivered
}

// note adds bytes that were delivered, and bytes that were retransmitted meanwhile.
func (l *lossShare) note(delivered, lost float64) {
	if l.lost += lost; delivered <= 0 {
		return
	}
	l.counted = min(l.counted+delivered, lossSpan)
	l.share += min(delivered/l.counted, 1) * (min(l.lost/delivered, 1) - l.share)
	l.lost = 0
}

// minShares holds, for each Share, the share of a path down to which sessions give way to other
// traffic.
var minShares = map[agentapi.Share]float64{"": 0.25, agentapi.SharePolite: 0.25, agentapi.ShareEqual: 0.5}

// minShare returns the largest value of minShares among the sessions that send, because a path has
// only one pace.
func (p *pacer) minShare() float64 {
	most := minShares[agentapi.SharePolite]
	for c, own := range p.conns {
		if own.waiting {
			most = max(most, minShares[c.s.params.Share])
		}
	}
	return most
}

// divide gives each sending session a share of the pace by its weight. Sessions that have less to
// send leave the rest of their shares to the others.
func (p *pacer) divide(now time.Time) {
	all := map[*session][]*conn{}
	for c, own := range p.conns {
		if own.waiting || now.Sub(own.busy) < 2*max(p.rtt, idleInterval) {
			all[c.s] = append(all[c.s], c)
		}
	}
	index := map[fairGroup]int{}
	var sessions [][]*session
	var demands [][]pathrate.Demand
	p.sending = 0
	for s, conns := range all {
		d := pathrate.Demand{Weight: s.weight()}
		for _, c := range conns {
			own := p.conns[c]
			if d.Wants += 1.25 * own.rate; own.waiting {
				d.Wants = math.Inf(1)
			}
		}
		if math.IsInf(d.Wants, 1) {
			p.sending++
			p.competing.add(s)
		}
		i, ok := index[s.fairGroup()]
		if !ok {
			i = len(index)
			index[s.fairGroup()] = i
			sessions, demands = append(sessions, nil), append(demands, nil)
		}
		sessions[i], demands[i] = append(sessions[i], s), append(demands[i], d)
	}
	for i, shares := range pathrate.ShareInGroups(p.control.Pace(), demands) {
		for j, share := range shares {
			p.split(all[sessions[i][j]], share)
		}
	}
}

// split divides a session's share among its connections. A connection that sends much less than its
// part, for example while bbr probes for the minimum round trip, leaves the rest to the others
// meanwhile.
func (p *pacer) split(conns []*conn, share float64) {
	equal := share / float64(len(conns))
	demands := make([]pathrate.Demand, len(conns))
	full := false
	for i, c := range conns {
		demands[i] = pathrate.Demand{Wants: math.Inf(1), Weight: 1}
		if rate := p.conns[c].rate; rate < equal/2 {
			demands[i].Wants = max(2*rate, equal/8)
		} else {
			full = true
		}
	}
	most := equal
	if full {
		most = pathrate.MaxMinShare(share, demands)
	}
	for _, c := range conns {
		p.setPace(c, p.conns[c], most)
	}
}

// setPace sets a connection's pace, if it has changed.
func (p *pacer) setPace(c *conn, own *pacedConn, pace float64) {
	if math.Abs(pace-own.pace) < paceStep*own.pace {
		return
	}
	if c.s.transport().Pace(c.net, pace) == nil {
		own.pace = pace
	}
}
