package host

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// Errors that Attach, Send and Receive wrap.
var (
	// ErrAttached means that the name is attached already.
	ErrAttached = errors.New("it is attached already")
	// ErrTooMany means that a limit of names or destinations has been reached.
	ErrTooMany = errors.New("there are too many")
	// ErrClosed means that the endpoint is closed, or that the host has ended.
	ErrClosed = errors.New("it is closed")
)

// Host has names, and sends chunks from them and receives chunks for them. Its methods may be
// called concurrently.
type Host struct {
	Options
	kernel bool // the interfaces belong to this machine's kernel
	links  []*link

	mu           sync.Mutex
	ended        bool
	names        map[frame.GUID]*Endpoint
	neighbours   neighbours
	outgoing     map[streamKey]*outgoing
	bySession    map[uint64]*outgoing
	requests     map[uint64]*outgoing // by the challenge of the answer to a path request
	multicasts   map[streamKey]*multicast
	searches     map[uint64]*multicast // by the challenge of the answer to a search for a name's hosts
	instance     uint64                // a random number that tells the host apart from others with the same names
	incoming     map[uint64]*incoming  // by session
	sentResets   map[uint64]sentReset  // the resets of streams that the host has ended, by session
	pings        map[frame.Stream]chan struct{}
	memory       memory
	queueLeft    int // bytes of chunks that may still be queued
	orphaned     int // bytes of queued chunks whose endpoints are closed
	limits       limits
	secret       [32]byte // the key of tokens
	custodyFlows custodyFlows
	forgeries    forgeryLimits
	far          *far          // nil if far hosts cannot be reached
	warnLimit    lograte.Limit // for log lines that others can cause
	counters     Counters
}

// New returns a host, which does nothing until Run is called.
func New(o Options) *Host {
	h := &Host{
		Options: o.withDefaults(), kernel: o.Open == nil, names: map[frame.GUID]*Endpoint{}, outgoing: map[streamKey]*outgoing{}, bySession: map[uint64]*outgoing{},
		requests: map[uint64]*outgoing{}, multicasts: map[streamKey]*multicast{}, searches: map[uint64]*multicast{}, instance: mathrand.Uint64(),
		incoming: map[uint64]*incoming{}, sentResets: map[uint64]sentReset{}, pings: map[frame.Stream]chan struct{}{},
	}
	_, _ = rand.Read(h.secret[:]) // rand.Read never returns an error
	h.neighbours.init()
	h.memory.init(h.Memory)
	h.queueLeft = 4 * h.Memory
	h.limits.init()
	h.forgeries.init()
	h.custodyFlows.init()
	for _, name := range append([]string{""}, h.Interfaces...) {
		h.links = append(h.links, newLink(h, name))
	}
	if h.Far != nil {
		h.far = newFar(h)
		h.links = append(h.links, h.far.link)
	}
	return h
}

// Counters counts what a host has done since its start.
type Counters struct {
	// Taken counts the sent chunks that their receivers have taken over, NotTaken the sent chunks
	// that were given up, and Delivered the received chunks.
	Taken, NotTaken, Delivered uint64
	// Frames counts the sent frames that carried chunks, and Again those of them that were
	// retransmissions.
	Frames, Again uint64
}

// Counters returns the current counters.
func (h *Host) Counters() Counters {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counters
}

// helloInterval is the time between two hellos.
const helloInterval = 10 * time.Second

// Run uses the interfaces until ctx ends, and then closes all endpoints.
func (h *Host) Run(ctx context.Context) {
	all := tasks.New()
	defer h.far.leave(context.WithoutCancel(ctx))
	defer h.close()
	defer all.Stop()
	for _, l := range h.links {
		all.Start(l.run)
	}
	if h.kernel {
		all.Start(h.watch)
	}
	if h.far != nil {
		h.far.run(all)
	}
	ticker := time.NewTicker(helloInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			h.tick(now)
		}
	}
}

// tick says hello, and removes expired state.
func (h *Host) tick(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.names {
		e.renew(now)
		h.sayHello(e)
	}
	h.sweep(now)
}

// sayHello says hello for a name on all links.
func (h *Host) sayHello(e *Endpoint) {
	broadcastAll(h, func(l *link) frame.Frame {
		hello := e.hello(l)
		return &hello
	})
}

// broadcastAll broadcasts a frame, which f makes for the link, on each link except the one to far
// hosts. The host is locked.
func broadcastAll(h *Host, f func(*link) frame.Frame) {
	for _, l := range h.links {
		if l.up && !l.isFar() {
			l.sendControl(broadcast, 0, f(l))
		}
	}
}

// close closes all endpoints and streams.
func (h *Host) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for _, e := range h.names {
		e.close()
	}
	for _, o := range h.outgoing {
		o.end(ErrClosed)
	}
	for _, m := range h.multicasts {
		m.end(ErrClosed)
	}
}

// sweep removes expired state.
func (h *Host) sweep(now time.Time) {
	for _, in := range h.incoming {
		if now.Sub(in.lastProgress) > in.timeout() {
			in.end(frame.ResetAbandoned)
		}
	}
	for session, f := range h.sentResets {
		if now.Sub(f.at) > sentResetLifetime {
			delete(h.sentResets, session)
		}
	}
	for _, o := range h.outgoing {
		if !inUse(o) && (o.endpoint.isClosed() || now.Sub(o.lastUsed) > forgetOutgoing) {
			o.forget()
		}
	}
	for _, m := range h.multicasts {
		if !m.hasWork() && (m.endpoint.isClosed() || now.Sub(m.lastUsed) > forgetOutgoing) {
			m.forget()
		}
	}
	h.neighbours.sweep(now)
	h.custodyFlows.sweep(now)
	h.resumeWaiting()
}

// detached returns a channel that is closed when a name is no longer attached, or nil if it is not
// attached now.
func (h *Host) detached(name frame.GUID) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.names[name]; e != nil {
		return e.closed
	}
	return nil
}

// maxNames limits the names of a host: each costs a frame every helloInterval.
const maxNames = 256

// Attach attaches the name that belongs to a private key to this host. The error wraps ErrAttached,
// ErrTooMany or ErrClosed.
func (h *Host) Attach(key ed25519.PrivateKey) (*Endpoint, error) {
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("a private key of %d bytes", len(key))
	}
	e := &Endpoint{host: h, Name: record.NameOf(public), key: key, arrived: make(chan struct{}, 1), closed: make(chan struct{}), untaken: map[*Received]struct{}{}, hellos: map[*link]frame.Hello{}, flows: map[frame.GUID]custody.ID{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
		return nil, fmt.Errorf("the host: %w", ErrClosed)
	case h.names[e.Name] != nil:
		return nil, fmt.Errorf("name %v: %w", e.Name, ErrAttached)
	case len(h.names) == maxNames:
		return nil, fmt.Errorf("names, %d: %w", maxNames, ErrTooMany)
	}
	h.names[e.Name] = e
	for _, o := range h.outgoing {
		if o.from == e.Name {
			e.adopt(o)
		}
	}
	for _, m := range h.multicasts {
		if m.from == e.Name {
			m.endpoint = e
		}
	}
	e.renew(time.Now())
	h.sayHello(e)
	h.far.triggerPublish()
	return e, nil
}
