package host

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// Errors that the results of sent chunks wrap.
var (
	// ErrKept means that the chunk was not taken over within the time for which chunks are kept.
	ErrKept = errors.New("nobody has taken it over in time")
	// ErrRefused means that the receiver does not accept the chunks.
	ErrRefused = errors.New("the receiver has refused it")
	// ErrFull means that there is no room for the chunk until others have been taken over.
	ErrFull = errors.New("too many chunks wait for their receivers")
	// ErrTooLarge means that the chunk is larger than MaxChunk.
	ErrTooLarge = errors.New("it is too large")
	// ErrLost means that some of the hosts of a multicast chunk have become silent.
	ErrLost = errors.New("some of the hosts have become silent")
	// ErrService means that the services of a chunk cannot be combined.
	ErrService = errors.New("a chunk to all hosts that have a name can have no other service")
)

// Endpoint is an attached name. Its methods may be called concurrently.
type Endpoint struct {
	// Name is the hash of the public key.
	Name frame.GUID

	host   *Host
	key    ed25519.PrivateKey
	number uint64 // the number of its current hellos
	hellos map[*link]frame.Hello

	publishedAddr netip.AddrPort // the address that was last published
	publishedAt   time.Time      // when that was
	publication   uint64         // the number of the last publication

	queued       int // bytes of sent chunks that have not been taken over
	untakenBytes int // bytes of complete received chunks that have not been taken over
	destinations int
	sealMu       sync.Mutex                // held from numbering a chunk for storage until it is queued
	flows        map[frame.GUID]custody.ID // the last chunk for storage of each destination
	room         chan struct{}             // closed when there may be room for a chunk; nil if nobody waits

	inbox   []*Received
	untaken map[*Received]struct{} // received by the application, and not taken over
	arrived chan struct{}          // signals that inbox is not empty
	closed  chan struct{}
}

// renew gives the next hellos a new number.
func (e *Endpoint) renew(now time.Time) {
	e.number = max(e.number+1, uint64(now.UnixNano()))
	clear(e.hellos)
}

// hello returns an unsolicited hello for a link.
func (e *Endpoint) hello(l *link) frame.Hello {
	h, ok := e.hellos[l]
	if !ok || h.MAC != l.MAC {
		h = record.SignHello(e.key, e.number, l.MAC, 0)
		e.hellos[l] = h
	}
	return h
}

// Send queues a chunk like TrySend, but waits until there is room for it or ctx ends.
func (e *Endpoint) Send(ctx context.Context, to frame.GUID, service frame.Service, payload []byte, done func(error)) error {
	for {
		room, err := e.push(to, service, payload, done)
		if !errors.Is(err, ErrFull) {
			return err
		}
		select {
		case <-room:
		case <-time.After(pushRetry): // other endpoints may have made room
		case <-e.closed:
		case <-ctx.Done():
			return fmt.Errorf("chunk to %v: %w", to, ctx.Err())
		}
	}
}

// pushRetry is how long Send waits for room before it tries again.
const pushRetry = 100 * time.Millisecond

// TrySend queues a chunk for a name and keeps the payload until done is called. The error wraps
// ErrFull, ErrTooLarge, ErrTooMany, ErrService or ErrClosed. If TrySend returns nil, done is called
// once: with nil when the receiver has taken the chunk over, or with an error that wraps ErrKept,
// ErrRefused or ErrClosed. done must neither block nor call the host's methods.
//
// With frame.Multicast, which cannot be combined with other services, the chunk is sent to each
// host that has the name now. If some of them have not taken it, done is called with an error that
// says how many; it may also wrap ErrLost or ErrTooMany.
func (e *Endpoint) TrySend(to frame.GUID, service frame.Service, payload []byte, done func(error)) error {
	_, err := e.push(to, service, payload, done)
	return err
}

// push queues a chunk if there is room. If not, the error wraps ErrFull, and room is closed when
// there may be room.
func (e *Endpoint) push(to frame.GUID, service frame.Service, payload []byte, done func(error)) (room <-chan struct{}, err error) {
	if len(payload) > MaxChunk {
		return nil, fmt.Errorf("chunk of %d bytes, at most %d: %w", len(payload), MaxChunk, ErrTooLarge)
	}
	if err := checkServices(service); err != nil {
		return nil, fmt.Errorf("chunk to %v: %w", to, err)
	}
	if storage, ok := e.host.storageFor(to, service); ok {
		return e.pushCustody(storage, to, service, payload, done)
	}
	h := e.host
	h.mu.Lock()
	defer h.mu.Unlock()
	return e.pushLocked(to, service, payload, done)
}

// pushLocked queues a chunk that does not go by way of a storage node, as push does. The host is
// locked.
func (e *Endpoint) pushLocked(to frame.GUID, service frame.Service, payload []byte, done func(error)) (room <-chan struct{}, err error) {
	if room, err := e.hasRoom(to, len(payload)); err != nil {
		return room, err
	}
	header := frame.RoutingHeader{Version: 1, Service: service, Source: frame.Address{GUID: e.Name}, Destination: frame.Address{GUID: to}}
	now, keep := time.Now(), e.host.Keep
	if service&(frame.ContentRequest|frame.ContentResponse) != 0 {
		keep = min(keep, hostapi.ContentWithin)
	}
	w := queuedChunk{endpoint: e, done: done, deadline: now.Add(keep)}
	if service&frame.Multicast != 0 {
		return nil, e.pushAll(w, header, payload, now)
	}
	o, err := e.host.outgoingTo(e, to)
	if err != nil {
		return nil, err
	}
	return nil, o.push(w, header, payload, now)
}

// hasRoom returns an error if a chunk may not be queued now. The host is locked.
func (e *Endpoint) hasRoom(to frame.GUID, size int) (room <-chan struct{}, err error) {
	if e.isClosed() {
		return nil, fmt.Errorf("name %v: %w", e.Name, ErrClosed)
	}
	if bytes := size + overhead; e.queued > 0 && e.queued+bytes > MaxQueued || bytes > e.host.queueLeft {
		if e.room == nil {
			e.room = make(chan struct{})
		}
		return e.room, fmt.Errorf("chunk of %d bytes to %v, with %d of the name's that are not taken: %w", size, to, e.queued, ErrFull)
	}
	return nil, nil
}

// notifyRoom wakes the senders that wait for room. The host is locked.
func (e *Endpoint) notifyRoom() {
	if e.room != nil {
		close(e.room)
		e.room = nil
	}
}

// Receive waits for a chunk. The sender keeps the chunk until it is taken over, see
// [Received.Take]. The error wraps ErrClosed, or is that of ctx.
func (e *Endpoint) Receive(ctx context.Context) (*Received, error) {
	for ctx.Err() == nil {
		if r := e.tryReceive(); r != nil {
			return r, nil
		}
		select {
		case <-e.arrived:
		case <-e.closed:
			return nil, fmt.Errorf("name %v: %w", e.Name, ErrClosed)
		case <-ctx.Done():
		}
	}
	return nil, ctx.Err()
}

// tryReceive returns the oldest chunk in the inbox, or nil if there is none.
func (e *Endpoint) tryReceive() *Received {
	for {
		r := e.next()
		if r == nil || r.Service&frame.Custody == 0 || e.unseal(r, time.Now()) {
			return r
		}
	}
}

// next removes the oldest chunk from the inbox and returns it, or nil. If there are more, it wakes
// another receiver.
func (e *Endpoint) next() *Received {
	e.host.mu.Lock()
	defer e.host.mu.Unlock()
	if len(e.inbox) == 0 {
		return nil
	}
	r := e.inbox[0]
	e.inbox[0] = nil
	e.untaken[r] = struct{}{}
	if e.inbox = e.inbox[1:]; len(e.inbox) > 0 {
		e.notifyArrived()
	} else {
		e.inbox = nil
	}
	return r
}

func (e *Endpoint) notifyArrived() {
	select {
	case e.arrived <- struct{}{}:
	default:
	}
}

// deliver puts a chunk into the inbox.
func (e *Endpoint) deliver(r *Received) {
	e.inbox = append(e.inbox, r)
	e.notifyArrived()
}

// Close detaches the name. Senders keep the chunks that have not been taken over, for the next host
// that attaches the name. Chunks that wait to be sent are still sent.
func (e *Endpoint) Close() {
	e.host.mu.Lock()
	defer e.host.mu.Unlock()
	e.close()
	e.host.resumeWaiting()
}

func (e *Endpoint) close() {
	if e.isClosed() {
		return
	}
	close(e.closed)
	delete(e.host.names, e.Name)
	e.host.far.withdraw(e)
	for _, in := range e.host.incoming {
		if in.endpoint == e {
			in.end(frame.ResetRefused)
		}
	}
	for r := range e.untaken {
		r.session.discardFrom(e.host, 0)
		r.undeliver()
	}
	for _, r := range e.inbox {
		r.session.discardFrom(e.host, 0)
		r.drop()
	}
	e.inbox, e.untaken = nil, nil
	e.orphan()
}

// orphan lets waiting chunks be sent without an endpoint, unless too many bytes of closed endpoints
// wait already.
func (e *Endpoint) orphan() {
	h := e.host
	h.orphaned += e.queued
	for _, o := range h.outgoing {
		switch {
		case o.endpoint != e:
		case !inUse(o):
			o.forget()
		case !o.hasWork():
		case h.orphaned > h.Memory:
			o.end(ErrClosed)
		}
	}
	for _, m := range h.multicasts {
		switch {
		case m.endpoint != e:
		case !m.hasWork():
			m.forget()
		case h.orphaned > h.Memory:
			m.end(ErrClosed)
		}
	}
}

// adopt takes over a stream of an earlier endpoint of the name. The stream's waiting chunks still
// count for the earlier endpoint, and take no room from the new one.
func (e *Endpoint) adopt(o *outgoing) {
	o.endpoint.destinations--
	o.endpoint = e // the new endpoint signs from now on
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
