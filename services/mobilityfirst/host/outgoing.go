package host

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/stream"
)

const (
	// maxOutgoing limits the streams at one time, and maxOutgoingPerName those of one name.
	maxOutgoing, maxOutgoingPerName = 4096, 1024
	// MaxQueued limits the bytes of one name's chunks that wait until they are taken over, except
	// for a single larger chunk. It is what an application may have in flight, with the overhead of
	// chunks for storage.
	MaxQueued = hostapi.MaxUnderway + hostapi.MaxSends*custody.Overhead
	// forgetOutgoing is how long an unused stream is kept.
	forgetOutgoing = 5 * time.Minute
	// maxSilences is how often in a row a receiver may miss the deadline before another path to it
	// is requested.
	maxSilences = 3
	// A path request is repeated after initialRetry; the pause is doubled after each request, up to
	// maxRetry. A destination that returns before the next request says hello, and the host then
	// requests a path at once.
	initialRetry, maxRetry = 100 * time.Millisecond, 15 * time.Second
	// After a receiver has reset a stream, the host pauses for initialPause before it sends again.
	// The pause is doubled, up to maxPause, with each reset until the receiver takes a chunk over.
	initialPause, maxPause = 10 * time.Millisecond, 2 * time.Second
	// minMTU is the smallest MTU over which chunks are sent.
	minMTU = 576
)

// streamKey identifies a stream by its ends; it has one direction.
type streamKey struct {
	from, to frame.GUID
	// member tells apart the streams to the members of a multicast; it is zero for an ordinary
	// stream.
	member uint64
}

// outgoing is a stream that the host sends.
type outgoing struct {
	streamKey
	host     *Host
	endpoint *Endpoint // the endpoint of the source name, which may be closed
	sender   *stream.Sender
	chunks   []queuedChunk // the chunks in sender, which have not been taken over
	number   uint64        // the number of the last chunk
	lastUsed time.Time
	changed  chan struct{} // closed when a path is found
	pings    int           // the number of pings that wait for a path
	timer    *time.Timer
	timerEnd time.Time // when the timer fires

	path          *path
	pausedPath    *path        // a path that is used again after a pause
	streamPath    *stream.Path // the state of the path, which is kept while there is none
	id            uint64       // the ID of the path request
	request       uint64       // the challenge of its answer, zero if no request is pending
	attempts      int          // requests for paths since the receiver was last heard
	resets        int          // resets since the receiver has last taken a chunk over
	lookingUp     bool         // the name service is being asked for the name
	askedAt       time.Time
	nextRequest   time.Time
	moved         uint64    // the number of the announced hello that caused the request, zero for none
	noLabelsUntil time.Time // until then labels are not used: a device on the way does not forward tags

	multihomed      bool    // chunks may use several paths at one time
	morePaths       []*path // the paths in use beside path
	answeredNumber  uint64  // the number of the hello in the first answer to the last request
	answeredAt      time.Time
	previousRequest uint64 // the challenge of further answers to the previous request, zero for none

	membership // the stream's membership in a multicast
}

// hasWork reports whether there are chunks or pings to send.
func (o *outgoing) hasWork() bool { return o.sender.Chunks() > 0 || o.pings > 0 }

// inUse reports whether the stream, or the multicast that it belongs to, has work.
func inUse(o *outgoing) bool { return o.hasWork() || o.multicast != nil && o.multicast.hasWork() }

// outgoingTo returns the stream to a name, and creates it if there is none.
func (h *Host) outgoingTo(e *Endpoint, to frame.GUID) (*outgoing, error) {
	return e.outgoingBy(streamKey{from: e.Name, to: to})
}

// outgoingBy returns the stream with this key, and creates it if there is none.
func (e *Endpoint) outgoingBy(key streamKey) (*outgoing, error) {
	h := e.host
	if o := h.outgoing[key]; o != nil {
		return o, nil
	}
	if e.destinations >= maxOutgoingPerName && !h.evict(e) || len(h.outgoing) >= maxOutgoing && !h.evict(nil) {
		return nil, fmt.Errorf("destinations, %d of one name, %d in all: %w", maxOutgoingPerName, maxOutgoing, ErrTooMany)
	}
	o := &outgoing{streamKey: key, host: h, endpoint: e, changed: make(chan struct{})}
	o.streamPath = stream.NewPath()
	o.sender = stream.NewSender(stream.SenderConfig{Stream: h.newSession(o), Payload: minMTU - frame.StreamDataSize, Queue: math.MaxInt}, o.streamPath)
	h.outgoing[key] = o
	e.destinations++
	return o, nil
}

// evict removes a stream without work, of one endpoint or, if of is nil, of any endpoint. If there
// is none, it gives up a stream whose endpoint is closed. It reports whether it has removed a
// stream.
func (h *Host) evict(of *Endpoint) bool {
	for _, o := range h.outgoing {
		if !inUse(o) && (of == nil || o.endpoint == of) {
			o.forget()
			return true
		}
	}
	for _, o := range h.outgoing {
		if o.endpoint.isClosed() && o.multicast == nil {
			o.end(ErrClosed)
			return true
		}
	}
	return false
}

// newSession returns the first stream of a new session with a random number.
func (h *Host) newSession(o *outgoing) frame.Stream {
	for {
		if s := frame.NewStream(rand.Uint64()); h.bySession[s.Session()] == nil {
			h.bySession[s.Session()] = o
			return s
		}
	}
}

// push queues a chunk and sends it when that is possible.
func (o *outgoing) push(w queuedChunk, header frame.RoutingHeader, payload []byte, now time.Time) error {
	w.bytes = len(payload) + overhead
	if err := o.queue(w, header, payload, now); err != nil {
		return err
	}
	w.charge()
	if header.Service&frame.Multihoming != 0 && !o.multihomed {
		if o.multihomed = true; o.path != nil || o.request != 0 {
			o.requestPath(now)
		}
	}
	o.proceed(now)
	return nil
}

// queue appends a chunk to the queue.
func (o *outgoing) queue(w queuedChunk, header frame.RoutingHeader, payload []byte, now time.Time) error {
	if err := o.sender.Push(o.number+1, header, payload); err != nil {
		return err
	}
	o.number++
	o.lastUsed = now
	o.chunks = append(o.chunks, w)
	return nil
}

// proceed lets the stream send by its paths, or requests a path if it has none.
func (o *outgoing) proceed(now time.Time) {
	o.dropExpired(now)
	switch {
	case o.path != nil:
		o.activate()
	case o.nextRequest.IsZero():
		o.requestPath(now)
	}
	o.schedule(now)
}

// handleAck handles an acknowledgement that comes from a place.
func (o *outgoing) handleAck(a *frame.StreamAck, at place, now time.Time) {
	p := o.pathTo(at)
	if p == nil && len(o.morePaths) == 0 {
		p = o.path
	}
	if p != nil {
		o.sender.Heard(p.streamPath)
	}
	if err := o.sender.Ack(a, now); err != nil {
		return // the acknowledgement is false: the chunks stay until a valid one arrives
	}
	o.lastAck = now
	if o.request == 0 { // otherwise another path is being requested, less and less often
		o.attempts = 0
	}
	o.taken(len(o.chunks) - o.sender.Chunks())
	if p != nil {
		p.confirmed(now)
	}
	if len(o.morePaths) > 0 {
		for _, p := range o.paths() {
			if p.streamPath.Acked() {
				p.confirmed(now)
			}
		}
	}
	o.activate()
}

// confirmed records that frames sent by the path have been acknowledged. The path is then valid for
// some time more, also if the network cannot renew the lease of its label.
func (p *path) confirmed(now time.Time) {
	p.acked, p.silences = true, 0
	if until := now.Add(lease); until.After(p.expires) {
		p.expires = until
	}
}

// taken finishes the first n chunks, which the receiver has taken over.
func (o *outgoing) taken(n int) {
	if n > 0 {
		o.finish(n, nil)
		o.resets, o.lastTaken = 0, o.lastAck
	}
}

// finish removes the first n chunks and reports their result.
func (o *outgoing) finish(n int, err error) {
	for i := range o.chunks[:n] {
		if w := &o.chunks[i]; w.multicastChunk != nil {
			w.multicastChunk.done(err)
		} else {
			w.finish(err)
		}
	}
	clear(o.chunks[:n])
	o.chunks = o.chunks[n:]
}

func (o *outgoing) notifyChanged() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// handleReset handles a receiver's reset of the stream.
func (o *outgoing) handleReset(r *frame.StreamReset, now time.Time) {
	o.lastAck = now
	o.sender.Reset(r.Taken)
	o.taken(len(o.chunks) - o.sender.Chunks())
	if r.Reason == frame.ResetTooLarge {
		n := len(o.chunks)
		o.sender.Abandon(n)
		o.finish(n, fmt.Errorf("chunks to %v: %w", o.to, ErrRefused))
		return
	}
	// Unless the receiver only lacks room, it may have forgotten the sender's name. The next path
	// request tells it the name again.
	if o.pausedPath = nil; r.Reason == frame.ResetLater {
		o.pausedPath = o.path
	}
	for _, p := range o.paths() {
		o.dropPath(p, now)
	}
	o.nextRequest = now.Add(min(initialPause<<min(o.resets, 10), maxPause))
	o.resets++
	o.schedule(now)
}

// schedule sets the timer to the next event.
func (o *outgoing) schedule(now time.Time) {
	var due time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	if o.path != nil {
		earlier(o.sender.Deadline())
		for _, p := range o.morePaths {
			earlier(p.expires)
		}
		if o.hasWork() && o.request == 0 && o.multicast == nil {
			earlier(o.renewAt())
		}
	}
	earlier(o.nextRequest)
	if o.multicast != nil && o.hasWork() {
		earlier(o.lastAck.Add(lostAfter))
	}
	if len(o.chunks) > 0 {
		earlier(o.chunks[0].deadline)
	}
	switch {
	case due.IsZero():
		return // if the timer still fires, it finds nothing to do
	case o.timer == nil:
		o.timer = time.AfterFunc(due.Sub(now), o.wake)
	case o.timerEnd.IsZero() || due.Before(o.timerEnd):
		o.timer.Reset(due.Sub(now))
	default:
		return // it fires earlier, and is set again then
	}
	o.timerEnd = due
}

// wake handles the events whose time has come.
func (o *outgoing) wake() {
	h := o.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.outgoing[o.streamKey] != o || h.ended {
		return
	}
	now := time.Now()
	o.timerEnd = time.Time{}
	late := o.countLate(now)
	if late > 0 {
		o.abandon(late)
	}
	if o.multicast != nil && o.multicast.dropIfLost(o, late > 0, now) {
		return
	}
	if isDue(o.nextRequest, now) {
		o.nextRequest = time.Time{}
		switch p := o.pausedPath; {
		case !o.hasWork() || o.path != nil && o.request == 0:
		case o.path == nil && p != nil && p.link.up && now.Before(p.expires):
			if o.handleGrant(p, now); o.multihomed {
				o.requestPath(now) // for the further paths
			}
		default:
			o.requestPath(now)
		}
	}
	if len(o.morePaths) > 0 {
		o.dropExpired(now)
	}
	if o.path != nil && o.hasWork() && o.request == 0 && o.multicast == nil && !now.Before(o.renewAt()) {
		o.requestPath(now)
	}
	if o.path != nil && isDue(o.sender.Deadline(), now) {
		o.expire(now)
	}
	o.schedule(now)
}

// countLate returns how many of the first chunks have passed their deadline.
func (o *outgoing) countLate(now time.Time) (n int) {
	for n < len(o.chunks) && !now.Before(o.chunks[n].deadline) {
		n++
	}
	return n
}

// abandon gives up the first n chunks, and tells a receiver that has begun to receive them.
func (o *outgoing) abandon(n int) {
	before := o.sender.Stream
	if o.sender.Abandon(n); o.sender.Stream != before && o.path != nil {
		o.path.link.sendControl(o.path.mac, o.path.tag, &frame.StreamReset{Stream: before, Reason: frame.ResetAbandoned})
		o.activate()
	}
	o.finish(n, fmt.Errorf("chunk to %v: %w", o.to, ErrKept))
}

// end gives up all chunks and removes the stream.
func (o *outgoing) end(err error) {
	n := len(o.chunks)
	o.sender.Abandon(n)
	o.finish(n, fmt.Errorf("chunk to %v: %w", o.to, err))
	o.forget()
}

// forget removes the stream, which has no chunks.
func (o *outgoing) forget() {
	if p := o.path; p != nil && o.sender.Started() {
		p.link.sendControl(p.mac, p.tag, &frame.StreamReset{Stream: o.sender.Stream, Reason: frame.ResetAbandoned})
	}
	if o.timer != nil {
		o.timer.Stop()
	}
	o.endpoint.destinations--
	delete(o.host.bySession, o.sender.Stream.Session())
	delete(o.host.requests, o.request)
	delete(o.host.requests, o.previousRequest)
	delete(o.host.outgoing, o.streamKey)
	if o.multicast != nil {
		o.multicast.removeMember(o)
	}
}
