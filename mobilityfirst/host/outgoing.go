package host

import (
	"crypto/ed25519"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/sluice-net/sluice/mobilityfirst/frame"
	"github.com/sluice-net/sluice/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/mobilityfirst/stream"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// maxOutgoing is to how many names there are streams at once, maxOutgoingEach of one name's.
	maxOutgoing, maxOutgoingEach = 4096, 1024
	// MaxQueued is how many bytes of chunks of one name wait until they are taken, but for a single
	// chunk.
	MaxQueued = hostapi.MaxUnderway
	// forgetOutgoing is when a stream over which nothing is sent is forgotten.
	forgetOutgoing = 5 * time.Minute
	// silences is how often in a row a receiver is silent before another way to it is looked for.
	silences = 3
	// A way is asked for again after firstAsk, doubled up to lastAsk.
	firstAsk, lastAsk = 100 * time.Millisecond, 2 * time.Second
	// resetPause is how long a receiver that has refused a stream is left alone, doubled for each
	// time.
	resetPause = 10 * time.Millisecond
	// leastMTU is that of a link over which chunks go.
	leastMTU = 576
)

// way is between what a stream goes: it has one direction.
type way struct{ from, to frame.GUID }

// outgoing is a stream that the host sends.
type outgoing struct {
	way
	host     *Host
	endpoint *Endpoint // that has the name, also when it is closed
	sender   *stream.Sender
	chunks   []waiting // not taken, as in sender
	number   uint64    // of the last chunk
	used     time.Time
	activeOn *link         // in whose list it stands
	changed  chan struct{} // closed when a way was found
	pings    int           // that wait for a way
	timer    *time.Timer
	due      time.Time // when the timer ends

	path    *path
	silent  int    // how often in a row the receiver was
	id      uint64 // of the request for a path
	request uint64 // what its answer answers to, zero for none
	asks    int    // for paths, since the receiver was heard
	asked   time.Time
	nextAsk time.Time
	plain   time.Time // until when no label is believed in: something between does not pass tags
}

// wanted says whether there is something to send.
func (o *outgoing) wanted() bool { return o.sender.Chunks() > 0 || o.pings > 0 }

// waiting is a chunk that is not taken.
type waiting struct {
	endpoint *Endpoint
	bytes    int
	done     func(error)
	until    time.Time
}

// path is how frames go to a name.
type path struct {
	found time.Time
	heard bool // the receiver has acknowledged something since
	link  *link
	mac   openflow.MAC
	tag   uint16 // of the way that the network has made, zero for none
	until time.Time
}

const (
	// lease is how long a way is there that the name's host has answered for by itself.
	lease = 30 * time.Second
	// askAgain is after how long such a way is asked for again: the network may make one by then.
	askAgain = time.Minute
	// distrust is for how long labels are not believed in to a name by one of which nothing has arrived.
	distrust = 10 * time.Minute
)

// renew is when a way is to be asked for again.
func (p *path) renew() time.Time {
	if p.tag == 0 {
		return p.found.Add(askAgain)
	}
	return p.until.Add(-lease / 2)
}

// outgoingTo is the stream to a name, a new one if there is none.
func (h *Host) outgoingTo(e *Endpoint, to frame.GUID) (*outgoing, error) {
	key := way{e.Name, to}
	if o := h.out[key]; o != nil {
		return o, nil
	}
	if e.destinations >= maxOutgoingEach && !h.evict(e) || len(h.out) >= maxOutgoing && !h.evict(nil) {
		return nil, fmt.Errorf("destinations, %d of one name, %d in all: %w", maxOutgoingEach, maxOutgoing, ErrTooMany)
	}
	o := &outgoing{way: key, host: h, endpoint: e, changed: make(chan struct{})}
	o.sender = stream.NewSender(stream.SenderConfig{Stream: h.newSession(o), Payload: leastMTU - frame.StreamDataSize, Queue: math.MaxInt})
	h.out[key] = o
	e.destinations++
	return o, nil
}

// evict forgets a stream over which nothing is to be sent, of one endpoint or of any; or else gives one up
// whose endpoint is closed.
func (h *Host) evict(of *Endpoint) bool {
	for _, o := range h.out {
		if !o.wanted() && (of == nil || o.endpoint == of) {
			o.forget()
			return true
		}
	}
	for _, o := range h.out {
		if o.endpoint.isClosed() {
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
	if err := o.sender.Push(o.number+1, header, payload); err != nil {
		return err
	}
	w.bytes = len(payload) + overhead
	w.endpoint.queued += w.bytes
	o.host.queueLeft -= w.bytes
	o.number++
	o.used = now
	o.chunks = append(o.chunks, w)
	o.move(now)
	return nil
}

// move has the stream send, or look for a way.
func (o *outgoing) move(now time.Time) {
	if o.path != nil && now.After(o.path.until) {
		o.path = nil
	}
	switch {
	case o.path != nil:
		o.path.link.activate(o)
	case o.nextAsk.IsZero():
		o.ask(now)
	}
	o.schedule(now)
}

// ask asks for a way to the name, on all links.
func (o *outgoing) ask(now time.Time) {
	h := o.host
	for o.request == 0 {
		o.id = rand.Uint64()
		q := frame.PathRequest{ID: o.id}
		copy(q.Hello.Key[:], o.endpoint.key.Public().(ed25519.PublicKey))
		if c := challenge(&q); h.requests[c] == nil {
			o.request = c
			h.requests[c] = o
		}
	}
	if o.endpoint.isClosed() {
		o.endpoint.renew(now) // nobody else does
	}
	if h.limits.asks.AllowN(now, 1) {
		o.asked = now
		for _, l := range h.links {
			if l.up {
				l.tell(broadcast, 0, &frame.PathRequest{ID: o.id, Destination: o.to, Hello: o.endpoint.hello(l)})
			}
		}
	}
	o.nextAsk = now.Add(min(firstAsk<<min(o.asks, 10), lastAsk))
	o.asks++
	o.schedule(now)
}

// granted takes a way that was found.
func (o *outgoing) granted(p *path, now time.Time) {
	delete(o.host.requests, o.request)
	o.request, o.silent, o.nextAsk = 0, 0, time.Time{}
	o.path = p
	if payload := max(p.link.MTU, leastMTU) - frame.StreamDataSize; payload < o.sender.Payload || payload > o.sender.Payload && !o.sender.Begun() {
		o.sender.Restart(payload)
	}
	o.tellChanged()
	o.move(now)
}

// lose gives a way up, and looks for another if there is something to send.
func (o *outgoing) lose(now time.Time) {
	o.path = nil
	if o.wanted() {
		o.ask(now)
	}
}

// acknowledged takes what the receiver says.
func (o *outgoing) acknowledged(a *frame.StreamAck, now time.Time) {
	if err := o.sender.Ack(a, now); err != nil {
		return // says something false: the chunks stay until it says something else
	}
	o.silent, o.asks = 0, 0
	if taken := len(o.chunks) - o.sender.Chunks(); taken > 0 {
		o.finish(taken, nil)
	}
	if p := o.path; p != nil {
		p.heard = true
		if p.tag == 0 {
			p.until = now.Add(lease) // it is heard
		}
		p.link.activate(o)
	}
}

// finish says of the first chunks what has become of them.
func (o *outgoing) finish(n int, err error) {
	if err == nil {
		o.host.counters.Taken += uint64(n)
	} else {
		o.host.counters.NotTaken += uint64(n)
	}
	for _, w := range o.chunks[:n] {
		w.endpoint.queued -= w.bytes
		if w.endpoint.isClosed() {
			o.host.orphaned -= w.bytes
		}
		w.endpoint.tellRoom()
		o.host.queueLeft += w.bytes
		w.done(err)
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
	o.sender.Reset(r.Taken)
	o.finish(len(o.chunks)-o.sender.Chunks(), nil)
	if r.Reason == frame.ResetTooLarge {
		n := len(o.chunks)
		o.sender.Abandon(n)
		o.finish(n, fmt.Errorf("chunks to %v: %w", o.to, ErrRefused))
		return
	}
	// It may know the name no more: it is told again, with the question for the way.
	o.path = nil
	o.nextAsk = now.Add(min(resetPause<<min(o.asks, 10), lastAsk))
	o.asks++
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
		if o.wanted() && o.request == 0 {
			earlier(o.path.renew())
		}
	}
	earlier(o.nextAsk)
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
	if n := o.late(now); n > 0 {
		o.abandon(n)
	}
	if !o.nextAsk.IsZero() && !now.Before(o.nextAsk) {
		o.nextAsk = time.Time{}
		if o.wanted() && (o.path == nil || o.request != 0) {
			o.ask(now)
		}
	}
	if o.path != nil && o.wanted() && o.request == 0 && !now.Before(o.path.renew()) {
		o.ask(now)
	}
	if due := o.sender.Deadline(); o.path != nil && !due.IsZero() && !now.Before(due) {
		o.sender.Expire(now)
		if o.silent++; o.silent >= silences {
			o.doubt(now)
		}
		o.path.link.activate(o)
	}
	o.schedule(now)
}

// doubt is for a receiver that is silent: another way is asked for, and a label by which nothing has arrived
// yet is left off.
func (o *outgoing) doubt(now time.Time) {
	if p := o.path; p.tag != 0 && !p.heard {
		o.plain = now.Add(distrust)
		p.tag, p.until = 0, now.Add(lease)
		if n := o.host.neighbours.find(o.to, place{p.link, p.mac}); n != nil {
			n.unlabel(place{p.link, p.mac}) // acknowledgements go there, too
		}
	}
	if o.request == 0 {
		o.endpoint.renew(now) // the network may have seen it say the same elsewhere
		o.ask(now)
	}
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
		o.path.link.activate(o)
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
	if p := o.path; p != nil && o.sender.Begun() {
		p.link.tell(p.mac, p.tag, &frame.StreamReset{Stream: o.sender.Stream, Reason: frame.ResetAbandoned})
	}
	if o.timer != nil {
		o.timer.Stop()
	}
	o.endpoint.destinations--
	delete(o.host.bySession, o.sender.Stream.Session())
	delete(o.host.requests, o.request)
	delete(o.host.out, o.way)
}
