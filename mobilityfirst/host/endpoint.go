package host

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-net/sluice/mobilityfirst/frame"
	"github.com/sluice-net/sluice/mobilityfirst/record"
)

// Errors of chunks that are sent, which wrap them.
var (
	// ErrKept is for a chunk that was kept as long as chunks are, and not taken.
	ErrKept = errors.New("nobody has taken it in time")
	// ErrRefused is for chunks that the receiver does not want.
	ErrRefused = errors.New("the receiver has refused it")
	// ErrFull is for a chunk for which there is no room before others are taken.
	ErrFull = errors.New("too much waits to be taken")
	// ErrTooLarge is for a chunk of more than MaxChunk bytes.
	ErrTooLarge = errors.New("it is too large")
)

// Endpoint is a name that is attached. Its methods may be called concurrently.
type Endpoint struct {
	// Name is the hash of its key.
	Name frame.GUID

	host   *Host
	key    ed25519.PrivateKey
	number uint64 // of its hellos
	hellos map[*link]frame.Hello

	queued       int // bytes of chunks that it has sent and that are not taken
	held         int // bytes of whole chunks that have come for it and are not taken
	destinations int
	room         chan struct{} // closed when there may be room again

	inbox   []*Received
	handed  map[*Received]struct{} // received, and not taken
	arrived chan struct{}          // that there is something in it
	closed  chan struct{}
}

// renew has the next hellos be newer than those before.
func (e *Endpoint) renew(now time.Time) {
	e.number = max(e.number+1, uint64(now.UnixNano()))
	clear(e.hellos)
}

// hello is one for a link, which answers to nothing.
func (e *Endpoint) hello(l *link) frame.Hello {
	h, is := e.hellos[l]
	if !is || h.MAC != l.MAC {
		h = record.SignHello(e.key, e.number, l.MAC, 0)
		e.hellos[l] = h
	}
	return h
}

// Send is TrySend, and waits until there is room for the chunk, or ctx ends.
func (e *Endpoint) Send(ctx context.Context, to frame.GUID, service frame.Service, payload []byte, done func(error)) error {
	for {
		room, err := e.push(to, service, payload, done)
		if !errors.Is(err, ErrFull) {
			return err
		}
		select {
		case <-room:
		case <-time.After(pushAgain): // others may have made room
		case <-e.closed:
		case <-ctx.Done():
			return fmt.Errorf("chunk to %v: %w", to, ctx.Err())
		}
	}
}

// pushAgain is how long is waited for room before it is looked for again.
const pushAgain = 100 * time.Millisecond

// TrySend queues a chunk for a name, and keeps its payload until it is done. The error wraps ErrFull, ErrTooLarge, ErrTooMany or ErrClosed. If
// there is none, done is called once: without an error when the receiver has taken the chunk, or with one
// that wraps ErrKept, ErrRefused or ErrClosed. It must neither block nor call the host's methods.
func (e *Endpoint) TrySend(to frame.GUID, service frame.Service, payload []byte, done func(error)) error {
	_, err := e.push(to, service, payload, done)
	return err
}

// push queues a chunk if there is room. If not, the error wraps ErrFull, and room is closed when there
// may be.
func (e *Endpoint) push(to frame.GUID, service frame.Service, payload []byte, done func(error)) (room <-chan struct{}, err error) {
	if len(payload) > MaxChunk {
		return nil, fmt.Errorf("chunk of %d bytes, at most %d: %w", len(payload), MaxChunk, ErrTooLarge)
	}
	header := frame.RoutingHeader{Version: 1, Service: service, Source: frame.Address{GUID: e.Name}, Destination: frame.Address{GUID: to}}
	h := e.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.isClosed() {
		return nil, fmt.Errorf("name %v: %w", e.Name, ErrClosed)
	}
	if bytes := len(payload) + overhead; e.queued > 0 && e.queued+bytes > MaxQueued || bytes > h.queueLeft {
		return e.room, fmt.Errorf("chunk of %d bytes to %v, with %d of the name's that are not taken: %w", len(payload), to, e.queued, ErrFull)
	}
	o, err := h.outgoingTo(e, to)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return nil, o.push(waiting{endpoint: e, done: done, until: now.Add(h.Keep)}, header, payload, now)
}

// tellRoom tells who waits that there is room. The host is locked.
func (e *Endpoint) tellRoom() {
	close(e.room)
	e.room = make(chan struct{})
}

// Ping asks the host of a name whether it is there, and says how long the answer took. It waits for a
// way until ctx ends. The error wraps ErrTooMany, ErrClosed, or the context's.
func (e *Endpoint) Ping(ctx context.Context, to frame.GUID) (time.Duration, error) {
	o, err := e.pinging(to)
	if err != nil {
		return 0, err
	}
	h, id := e.host, frame.Stream(0)
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		o.pings--
		delete(h.pings, id)
	}()
	for {
		h.mu.Lock()
		sent, changed, answered := time.Now(), o.changed, make(chan struct{})
		var again <-chan time.Time
		if p := o.path; p != nil {
			delete(h.pings, id)
			id = frame.Stream(rand.Uint64())
			h.pings[id] = answered
			p.link.tell(p.mac, p.tag, &frame.StreamQuery{Stream: id})
			changed, again = nil, time.After(pingAgain)
		}
		h.mu.Unlock()
		select {
		case <-answered:
			return time.Since(sent), nil
		case <-changed:
		case <-again:
			h.mu.Lock()
			if h.out[o.way] == o {
				o.ask(time.Now())
			}
			h.mu.Unlock()
		case <-e.closed:
			return 0, fmt.Errorf("name %v: %w", e.Name, ErrClosed)
		case <-ctx.Done():
			return 0, fmt.Errorf("no answer from %v: %w", to, ctx.Err())
		}
	}
}

// pingAgain is how long an answer to a ping is waited for before there is another.
const pingAgain = time.Second

// pinging has a way to a name looked for.
func (e *Endpoint) pinging(to frame.GUID) (*outgoing, error) {
	h := e.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.isClosed() {
		return nil, fmt.Errorf("name %v: %w", e.Name, ErrClosed)
	}
	o, err := h.outgoingTo(e, to)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	o.pings++
	o.used = now
	o.move(now)
	return o, nil
}

// Received is a chunk that has come.
type Received struct {
	// From is the name of who has sent it: its host has been told so by the name's owner.
	From    frame.GUID
	Service frame.Service
	Payload []byte

	host     *Host
	session  *session
	endpoint *Endpoint
	delivery *delivery
	bytes    int // that are held for it
}

// Receive waits for a chunk. Its sender keeps it until it is taken: see [Received.Take]. The error wraps
// ErrClosed, or is the context's.
func (e *Endpoint) Receive(ctx context.Context) (*Received, error) {
	for {
		if r := e.next(); r != nil {
			return r, nil
		}
		select {
		case <-e.arrived:
		case <-e.closed:
			return nil, fmt.Errorf("name %v: %w", e.Name, ErrClosed)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// next takes the oldest chunk out of the inbox, nil for none. If there are more, it wakes whoever
// waits for the next.
func (e *Endpoint) next() *Received {
	e.host.mu.Lock()
	defer e.host.mu.Unlock()
	if len(e.inbox) == 0 {
		return nil
	}
	r := e.inbox[0]
	e.inbox[0] = nil
	e.handed[r] = struct{}{}
	if e.inbox = e.inbox[1:]; len(e.inbox) > 0 {
		e.tellArrived()
	} else {
		e.inbox = nil
	}
	return r
}

func (e *Endpoint) tellArrived() {
	select {
	case e.arrived <- struct{}{}:
	default:
	}
}

// deliver puts a chunk into the inbox.
func (e *Endpoint) deliver(r *Received) {
	e.inbox = append(e.inbox, r)
	e.tellArrived()
}

// Take says that the chunk is the receiver's: its sender forgets it. After the endpoint was closed it
// does nothing.
func (r *Received) Take() {
	h := r.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, is := r.endpoint.handed[r]; is {
		delete(r.endpoint.handed, r)
		r.drop()
		r.delivery.taken = true
		r.session.advance(h)
		h.feed()
	}
}

// drop gives the memory of the chunk's payload back.
func (r *Received) drop() {
	r.endpoint.held -= r.bytes
	r.host.release(r.delivery.account, r.bytes)
}

// Close detaches the name. Chunks that have not been taken stay with their senders, for whoever attaches
// it next; those that wait to be sent still are.
func (e *Endpoint) Close() {
	e.host.mu.Lock()
	defer e.host.mu.Unlock()
	e.close()
	e.host.feed()
}

func (e *Endpoint) close() {
	if e.isClosed() {
		return
	}
	close(e.closed)
	delete(e.host.names, e.Name)
	for _, in := range e.host.in {
		if in.endpoint == e {
			in.end(frame.ResetRefused)
		}
	}
	for r := range e.handed {
		r.session.detach(e.host)
		r.drop()
	}
	for _, r := range e.inbox {
		r.session.detach(e.host)
		r.drop()
	}
	e.inbox, e.handed = nil, nil
	e.orphan()
}

// orphan has what waits to be sent go on without an endpoint, unless too much does already.
func (e *Endpoint) orphan() {
	h := e.host
	h.orphaned += e.queued
	for _, o := range h.out {
		switch {
		case o.endpoint != e:
		case !o.wanted():
			o.forget()
		case h.orphaned > h.Memory:
			o.end(ErrClosed)
		}
	}
}

// adopt takes over what an endpoint before has left of a stream.
func (e *Endpoint) adopt(o *outgoing) {
	for i := range o.chunks {
		w := &o.chunks[i]
		w.endpoint.queued -= w.bytes
		e.host.orphaned -= w.bytes
		w.endpoint = e
		e.queued += w.bytes
	}
	o.endpoint.destinations--
	o.endpoint = e // it signs from now on
	e.destinations++
}

func (e *Endpoint) isClosed() bool {
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}
