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

// Errors of chunks that are sent, which wrap them.
var (
	// ErrKept is for a chunk that was kept as long as chunks are, and not taken.
	ErrKept = errors.New("it was not taken in time")
	// ErrRefused is for chunks that the receiver does not want.
	ErrRefused = errors.New("the receiver has refused it")
	// ErrFull is for a chunk for which there is no room before others are taken.
	ErrFull = errors.New("too much waits to be taken")
	// ErrTooLarge is for a chunk of more than MaxChunk bytes.
	ErrTooLarge = errors.New("it is too large")
	// ErrLost is for a chunk to several hosts of which some are silent.
	ErrLost = errors.New("they are not there any more")
	// ErrService is for services that one chunk can't have.
	ErrService = errors.New("a chunk to all hosts that have a name can have no other service")
)

// Endpoint is a name that is attached. Its methods may be called concurrently.
type Endpoint struct {
	// Name is the hash of its key.
	Name frame.GUID

	host   *Host
	key    ed25519.PrivateKey
	number uint64 // of its hellos
	hellos map[*link]frame.Hello

	publishedAt netip.AddrPort // where the name service was told that it is
	published   time.Time      // and when
	publication uint64         // the number of what it was told last

	queued       int // bytes of chunks that it has sent and that are not taken
	held         int // bytes of whole chunks that have come for it and are not taken
	destinations int
	sealing      sync.Mutex                // held from when a chunk to be kept is numbered until it is queued
	flows        map[frame.GUID]custody.ID // the last chunks to be kept, by destination
	room         chan struct{}             // closed when there may be room again

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

// TrySend queues a chunk for a name, and keeps its payload until it is done. The error wraps ErrFull, ErrTooLarge,
// ErrTooMany, ErrService or ErrClosed. If there is none, done is called once: without an error when the receiver has taken the
// chunk, or with one that wraps ErrKept, ErrRefused or ErrClosed. With frame.Multicast, which no other service goes with, it
// goes to each host that has the name now; done says how many of them have not taken it, if not all have, with an error
// that may wrap ErrLost, too, or ErrTooMany. It must neither block nor call the host's methods.
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
	if err := goTogether(service); err != nil {
		return nil, fmt.Errorf("chunk to %v: %w", to, err)
	}
	if storage, is := e.host.kept(to, service); is {
		return e.pushKept(storage, to, service, payload, done)
	}
	h := e.host
	h.mu.Lock()
	defer h.mu.Unlock()
	return e.pushLocked(to, service, payload, done)
}

// pushLocked is push. The host is locked.
func (e *Endpoint) pushLocked(to frame.GUID, service frame.Service, payload []byte, done func(error)) (room <-chan struct{}, err error) {
	if room, err := e.hasRoom(to, len(payload)); err != nil {
		return room, err
	}
	header := frame.RoutingHeader{Version: 1, Service: service, Source: frame.Address{GUID: e.Name}, Destination: frame.Address{GUID: to}}
	now, keep := time.Now(), e.host.Keep
	if service&(frame.ContentRequest|frame.ContentResponse) != 0 {
		keep = min(keep, hostapi.ContentWithin)
	}
	w := waiting{endpoint: e, done: done, until: now.Add(keep)}
	if service&frame.Multicast != 0 {
		return nil, e.pushAll(w, header, payload, now)
	}
	o, err := e.host.outgoingTo(e, to)
	if err != nil {
		return nil, err
	}
	return nil, o.push(w, header, payload, now)
}

// hasRoom says whether a chunk may be queued. The host is locked.
func (e *Endpoint) hasRoom(to frame.GUID, size int) (room <-chan struct{}, err error) {
	if e.isClosed() {
		return nil, fmt.Errorf("name %v: %w", e.Name, ErrClosed)
	}
	if bytes := size + overhead; e.queued > 0 && e.queued+bytes > MaxQueued || bytes > e.host.queueLeft {
		return e.room, fmt.Errorf("chunk of %d bytes to %v, with %d of the name's that are not taken: %w", size, to, e.queued, ErrFull)
	}
	return nil, nil
}

// tellRoom tells who waits that there is room. The host is locked.
func (e *Endpoint) tellRoom() {
	close(e.room)
	e.room = make(chan struct{})
}

// Receive waits for a chunk. Its sender keeps it until it is taken: see [Received.Take]. The error wraps
// ErrClosed, or is the context's.
func (e *Endpoint) Receive(ctx context.Context) (*Received, error) {
	for ctx.Err() == nil {
		if r := e.next(); r != nil {
			if r.Service&frame.Custody != 0 && !e.unseal(r, time.Now()) {
				continue
			}
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
	e.host.far.withdraw(e)
	for _, in := range e.host.in {
		if in.endpoint == e {
			in.end(frame.ResetRefused)
		}
	}
	for r := range e.handed {
		r.session.detach(e.host, 0)
		r.back()
	}
	for _, r := range e.inbox {
		r.session.detach(e.host, 0)
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
		case !needed(o):
			o.forget()
		case !o.wanted():
		case h.orphaned > h.Memory:
			o.end(ErrClosed)
		}
	}
	for _, m := range h.multicasts {
		switch {
		case m.endpoint != e:
		case !m.wanted():
			m.forget()
		case h.orphaned > h.Memory:
			m.end(ErrClosed)
		}
	}
}

// adopt takes over a stream of an endpoint before. What waits in it goes on as that one's: it takes no room from
// the new one.
func (e *Endpoint) adopt(o *outgoing) {
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
