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
	// maxOutgoing is to how many names there are streams at once, maxOutgoingEach of one name's.
	maxOutgoing, maxOutgoingEach = 4096, 1024
	// MaxQueued is how many bytes of chunks of one name wait until they are taken, but for a single
	// chunk: what an application may have under way, with what is added to chunks that may be kept.
	MaxQueued = hostapi.MaxUnderway + hostapi.MaxSends*custody.Overhead
	// forgetOutgoing is when a stream over which nothing is sent is forgotten.
	forgetOutgoing = 5 * time.Minute
	// silences is how often in a row a receiver is silent before another way to it is looked for.
	silences = 3
	// A way is asked for again after firstAsk, doubled up to lastAsk. If the other is there again before that, it
	// says hello.
	firstAsk, lastAsk = 100 * time.Millisecond, 15 * time.Second
	// A receiver that does not go on with a stream is left alone for resetPause, doubled up to lastPause for each
	// time until it takes something.
	resetPause, lastPause = 10 * time.Millisecond, 2 * time.Second
	// leastMTU is that of a link over which chunks go.
	leastMTU = 576
)

// way is between what a stream goes: it has one direction.
type way struct {
	from, to frame.GUID
	// member tells apart the hosts to each of which something goes; zero for one of those that have the name.
	member uint64
}

// outgoing is a stream that the host sends.
type outgoing struct {
	way
	host     *Host
	endpoint *Endpoint // that has the name, also when it is closed
	sender   *stream.Sender
	chunks   []waiting // not taken, as in sender
	number   uint64    // of the last chunk
	used     time.Time
	changed  chan struct{} // closed when a way was found
	pings    int           // that wait for a way
	timer    *time.Timer
	due      time.Time // when the timer ends

	path    *path
	rested  *path        // that is taken again after a pause
	carries *stream.Path // by which it goes on while there is no way
	id      uint64       // of the request for a path
	request uint64       // what its answer answers to, zero for none
	asks    int          // for paths, since the receiver was heard
	resets  int          // of the stream, since the receiver has taken something
	looking bool         // it is asked where the name is
	asked   time.Time
	nextAsk time.Time
	plain   time.Time // until when no label is believed in: something between does not pass tags

	multihomed bool    // chunks may go by several ways at one time
	further    []*path // by which frames go beside path
	answered   uint64  // the number of the hello in the first answer to the last request
	answeredAt time.Time
	before     uint64 // what further answers to that answer to, zero for none

	membership // in a multicast
}

// wanted says whether there is something to send.
func (o *outgoing) wanted() bool { return o.sender.Chunks() > 0 || o.pings > 0 }

// needed says whether there is something to send to it, or to others with it.
func needed(o *outgoing) bool { return o.wanted() || o.of != nil && o.of.wanted() }

// outgoingTo is the stream to a name, a new one if there is none.
func (h *Host) outgoingTo(e *Endpoint, to frame.GUID) (*outgoing, error) {
	return e.outgoingBy(way{from: e.Name, to: to})
}

// outgoingBy is the stream that goes a way, a new one if there is none.
func (e *Endpoint) outgoingBy(key way) (*outgoing, error) {
	h := e.host
	if o := h.out[key]; o != nil {
		return o, nil
	}
	if e.destinations >= maxOutgoingEach && !h.evict(e) || len(h.out) >= maxOutgoing && !h.evict(nil) {
		return nil, fmt.Errorf("destinations, %d of one name, %d in all: %w", maxOutgoingEach, maxOutgoing, ErrTooMany)
	}
	o := &outgoing{way: key, host: h, endpoint: e, changed: make(chan struct{})}
	o.carries = stream.NewPath()
	o.sender = stream.NewSender(stream.SenderConfig{Stream: h.newSession(o), Payload: leastMTU - frame.StreamDataSize, Queue: math.MaxInt}, o.carries)
	h.out[key] = o
	e.destinations++
	return o, nil
}

// evict forgets a stream over which nothing is to be sent, of one endpoint or of any; or else gives one up
// whose endpoint is closed.
func (h *Host) evict(of *Endpoint) bool {
	for _, o := range h.out {
		if !needed(o) && (of == nil || o.endpoint == of) {
			o.forget()
			return true
		}
	}
	for _, o := range h.out {
		if o.endpoint.isClosed() && o.of == nil {
			o.end(ErrClosed)
			return true
		}
	}
	return false
}

// newSession draws the number of a stream's session.
func (h *Host) newSession(o *outgoing) frame.Stream {
	for {
		if s := frame.NewStream(rand.Uint64()); h.bySession[s.Session()] == nil {
			h.bySession[s.Session()] = o
			return s
		}
	}
}

// push queues a chunk.
func (o *outgoing) push(w waiting, header frame.RoutingHeader, payload []byte, now time.Time) error {
	w.bytes = len(payload) + overhead
	if err := o.queue(w, header, payload, now); err != nil {
		return err
	}
	w.charge()
	if header.Service&frame.Multihoming != 0 && !o.multihomed {
		if o.multihomed = true; o.path != nil || o.request != 0 {
			o.ask(now)
		}
	}
	o.move(now)
	return nil
}

// queue puts a chunk behind the others.
func (o *outgoing) queue(w waiting, header frame.RoutingHeader, payload []byte, now time.Time) error {
	if err := o.sender.Push(o.number+1, header, payload); err != nil {
		return err
	}
	o.number++
	o.used = now
	o.chunks = append(o.chunks, w)
	return nil
}

// move has the stream send, or look for a way.
func (o *outgoing) move(now time.Time) {
	o.leaveOver(now)
	switch {
	case o.path != nil:
		o.activate()
	case o.nextAsk.IsZero():
		o.ask(now)
	}
	o.schedule(now)
}

// acknowledged takes what the receiver says, from a place.
func (o *outgoing) acknowledged(a *frame.StreamAck, at place, now time.Time) {
	p := o.wayTo(at)
	if p == nil && len(o.further) == 0 {
		p = o.path
	}
	if p != nil {
		o.sender.Heard(p.carries)
	}
	if err := o.sender.Ack(a, now); err != nil {
		return // says something false: the chunks stay until it says something else
	}
	o.heardAt = now
	if o.request == 0 { // or it is asked for another way, less and less often
		o.asks = 0
	}
	o.took(len(o.chunks) - o.sender.Chunks())
	if p != nil {
		p.isHeard(now)
	}
	if len(o.further) > 0 {
		for _, p := range o.ways() {
			if p.carries.Acked() {
				p.isHeard(now)
			}
		}
	}
	o.activate()
}

// isHeard notes that the receiver has heard what went by a way.
func (p *path) isHeard(now time.Time) {
	p.heard, p.silent = true, 0
	if p.tag == 0 {
		p.until = now.Add(lease)
	}
}

// took is for the first chunks, which the receiver has taken.
func (o *outgoing) took(n int) {
	if n > 0 {
		o.finish(n, nil)
		o.resets, o.tookAt = 0, o.heardAt
	}
}

// finish says of the first chunks what has become of them.
func (o *outgoing) finish(n int, err error) {
	for i := range o.chunks[:n] {
		if w := &o.chunks[i]; w.cast != nil {
			w.cast.hear(err)
		} else {
			w.settle(err)
		}
	}
	clear(o.chunks[:n])
	o.chunks = o.chunks[n:]
}

func (o *outgoing) tellChanged() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// reset is for a receiver that does not go on.
func (o *outgoing) reset(r *frame.StreamReset, now time.Time) {
	o.heardAt = now
	o.sender.Reset(r.Taken)
	o.took(len(o.chunks) - o.sender.Chunks())
	if r.Reason == frame.ResetTooLarge {
		n := len(o.chunks)
		o.sender.Abandon(n)
		o.finish(n, fmt.Errorf("chunks to %v: %w", o.to, ErrRefused))
		return
	}
	// Unless the receiver has only no room, it may know the name no more: it is told again, with the question for
	// the way.
	if o.rested = nil; r.Reason == frame.ResetLater {
		o.rested = o.path
	}
	for _, p := range o.ways() {
		o.leave(p, now)
	}
	o.nextAsk = now.Add(min(resetPause<<min(o.resets, 10), lastPause))
	o.resets++
	o.schedule(now)
}

// schedule sets the timer to what has to be done next.
func (o *outgoing) schedule(now time.Time) {
	var due time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	if o.path != nil {
		earlier(o.sender.Deadline())
		for _, p := range o.further {
			earlier(p.until)
		}
		if o.wanted() && o.request == 0 && o.of == nil {
			earlier(o.renew())
		}
	}
	earlier(o.nextAsk)
	if o.of != nil && o.wanted() {
		earlier(o.heardAt.Add(lostAfter))
	}
	if len(o.chunks) > 0 {
		earlier(o.chunks[0].until)
	}
	switch {
	case due.IsZero():
		return // if it ends all the same, it finds nothing to do
	case o.timer == nil:
		o.timer = time.AfterFunc(due.Sub(now), o.wake)
	case o.due.IsZero() || due.Before(o.due):
		o.timer.Reset(due.Sub(now))
	default:
		return // it ends earlier, and is set then
	}
	o.due = due
}

// wake does what is due.
func (o *outgoing) wake() {
	h := o.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.out[o.way] != o || h.ended {
		return
	}
	now := time.Now()
	o.due = time.Time{}
	late := o.late(now)
	if late > 0 {
		o.abandon(late)
	}
	if o.of != nil && o.of.loses(o, late > 0, now) {
		return
	}
	if isDue(o.nextAsk, now) {
		o.nextAsk = time.Time{}
		switch p := o.rested; {
		case !o.wanted() || o.path != nil && o.request == 0:
		case o.path == nil && p != nil && p.link.up && now.Before(p.until):
			if o.granted(p, now); o.multihomed {
				o.ask(now) // for the further ones
			}
		default:
			o.ask(now)
		}
	}
	if len(o.further) > 0 {
		o.leaveOver(now)
	}
	if o.path != nil && o.wanted() && o.request == 0 && o.of == nil && !now.Before(o.renew()) {
		o.ask(now)
	}
	if o.path != nil && isDue(o.sender.Deadline(), now) {
		o.expire(now)
	}
	o.schedule(now)
}

// late is how many of the first chunks have no time left.
func (o *outgoing) late(now time.Time) (n int) {
	for n < len(o.chunks) && !now.Before(o.chunks[n].until) {
		n++
	}
	return n
}

// abandon gives up the first chunks, and tells who has begun to receive them.
func (o *outgoing) abandon(n int) {
	before := o.sender.Stream
	if o.sender.Abandon(n); o.sender.Stream != before && o.path != nil {
		o.path.link.tell(o.path.mac, o.path.tag, &frame.StreamReset{Stream: before, Reason: frame.ResetAbandoned})
		o.activate()
	}
	o.finish(n, fmt.Errorf("chunk to %v: %w", o.to, ErrKept))
}

// end gives everything up.
func (o *outgoing) end(err error) {
	n := len(o.chunks)
	o.sender.Abandon(n)
	o.finish(n, fmt.Errorf("chunk to %v: %w", o.to, err))
	o.forget()
}

// forget forgets the stream, to which no chunk belongs.
func (o *outgoing) forget() {
	if p := o.path; p != nil && o.sender.Started() {
		p.link.tell(p.mac, p.tag, &frame.StreamReset{Stream: o.sender.Stream, Reason: frame.ResetAbandoned})
	}
	if o.timer != nil {
		o.timer.Stop()
	}
	o.endpoint.destinations--
	delete(o.host.bySession, o.sender.Stream.Session())
	delete(o.host.requests, o.request)
	delete(o.host.requests, o.before)
	delete(o.host.out, o.way)
	if o.of != nil {
		o.of.left(o)
	}
}
