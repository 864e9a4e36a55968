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

// Errors of Attach, Send and Receive, which wrap them.
var (
	// ErrAttached is for a name that somebody has attached already.
	ErrAttached = errors.New("it is attached already")
	// ErrTooMany is for more names or destinations than there may be.
	ErrTooMany = errors.New("there are too many")
	// ErrClosed is for an endpoint that is closed, or a host that has ended.
	ErrClosed = errors.New("it is closed")
)

// Host has names, and brings chunks to and from them. Its methods may be called concurrently.
type Host struct {
	Options
	kernel bool // the interfaces are this machine's
	links  []*link

	mu         sync.Mutex
	ended      bool
	names      map[frame.GUID]*Endpoint
	neighbours neighbours
	out        map[way]*outgoing
	bySession  map[uint64]*outgoing
	requests   map[uint64]*outgoing // paths that have been asked for
	multicasts map[way]*multicast
	searches   map[uint64]*multicast // hosts of names that have been asked for
	instance   uint64                // tells the host apart from others that have the same names
	in         map[uint64]*incoming  // by session
	farewells  map[uint64]farewell   // of streams that were broken off, by session
	pings      map[frame.Stream]chan struct{}
	memory     memory
	queueLeft  int // bytes of chunks that may still be queued to be sent
	orphaned   int // bytes of those whose endpoints are closed
	limits     limits
	secret     [32]byte // of which tokens are made
	brought    brought
	liars      liars
	far        *far          // nil for none
	strange    lograte.Limit // lines that others can cause
	counters   Counters
}

// New returns a host that does nothing before it runs.
func New(o Options) *Host {
	h := &Host{
		Options: o.withDefaults(), kernel: o.Open == nil, names: map[frame.GUID]*Endpoint{}, out: map[way]*outgoing{}, bySession: map[uint64]*outgoing{},
		requests: map[uint64]*outgoing{}, multicasts: map[way]*multicast{}, searches: map[uint64]*multicast{}, instance: mathrand.Uint64(),
		in: map[uint64]*incoming{}, farewells: map[uint64]farewell{}, pings: map[frame.Stream]chan struct{}{},
	}
	_, _ = rand.Read(h.secret[:]) // never fails
	h.neighbours.init()
	h.memory.init(h.Memory)
	h.queueLeft = 4 * h.Memory
	h.limits.init()
	h.liars.init()
	h.brought.init()
	for _, name := range append([]string{""}, h.Interfaces...) {
		h.links = append(h.links, newLink(h, name))
	}
	if h.Far != nil {
		h.far = newFar(h)
		h.links = append(h.links, h.far.link)
	}
	return h
}

// Counters are what a host has done since it was made.
type Counters struct {
	// Taken are chunks that were sent and taken, NotTaken those that were given up, Delivered those that have
	// come.
	Taken, NotTaken, Delivered uint64
	// Frames are those that carried chunks, Again those of them that were lost before.
	Frames, Again uint64
}

// Counters is what it has done until now.
func (h *Host) Counters() Counters {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counters
}

// helloEvery is how often the host says hello.
const helloEvery = 10 * time.Second

// Run uses the interfaces until ctx ends. After that all endpoints are closed.
func (h *Host) Run(ctx context.Context) {
	all := tasks.New()
	defer h.far.leave(context.WithoutCancel(ctx))
	defer h.end()
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
	ticker := time.NewTicker(helloEvery)
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

// tick says hello, and forgets what is not needed any more.
func (h *Host) tick(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.names {
		e.renew(now)
		h.greet(e)
	}
	h.forget(now)
}

// greet says hello for a name on all links.
func (h *Host) greet(e *Endpoint) {
	tellAll(h, func(l *link) frame.Frame {
		hello := e.hello(l)
		return &hello
	})
}

// tellAll sends a frame of its own to everybody on each link but the one to far hosts. The host is locked.
func tellAll(h *Host, f func(*link) frame.Frame) {
	for _, l := range h.links {
		if l.up && !l.isFar() {
			l.tell(broadcast, 0, f(l))
		}
	}
}

// end closes all that is open.
func (h *Host) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for _, e := range h.names {
		e.close()
	}
	for _, o := range h.out {
		o.end(ErrClosed)
	}
	for _, m := range h.multicasts {
		m.end(ErrClosed)
	}
}

// forget forgets what nobody needs any more.
func (h *Host) forget(now time.Time) {
	for _, in := range h.in {
		if now.Sub(in.heard) > in.patience() {
			in.end(frame.ResetAbandoned)
		}
	}
	for session, f := range h.farewells {
		if now.Sub(f.at) > farewellFor {
			delete(h.farewells, session)
		}
	}
	for _, o := range h.out {
		if !needed(o) && (o.endpoint.isClosed() || now.Sub(o.used) > forgetOutgoing) {
			o.forget()
		}
	}
	for _, m := range h.multicasts {
		if !m.wanted() && (m.endpoint.isClosed() || now.Sub(m.used) > forgetOutgoing) {
			m.forget()
		}
	}
	h.neighbours.sweep(now)
	h.brought.sweep(now)
	h.feed()
}

// detached is closed when a name is not attached any more; nil if it is not.
func (h *Host) detached(name frame.GUID) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.names[name]; e != nil {
		return e.closed
	}
	return nil
}

// maxNames is how many names a host has at most: each costs a frame every helloEvery.
const maxNames = 256

// Attach has a name be here, which belongs to a private key. The error wraps ErrAttached, ErrTooMany or
// ErrClosed.
func (h *Host) Attach(key ed25519.PrivateKey) (*Endpoint, error) {
	public, is := key.Public().(ed25519.PublicKey)
	if !is {
		return nil, fmt.Errorf("a private key of %d bytes", len(key))
	}
	e := &Endpoint{host: h, Name: record.NameOf(public), key: key, arrived: make(chan struct{}, 1), closed: make(chan struct{}), room: make(chan struct{}), handed: map[*Received]struct{}{}, hellos: map[*link]frame.Hello{}, flows: map[frame.GUID]custody.ID{}}
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
	for _, o := range h.out {
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
	h.greet(e)
	h.far.toPublish()
	return e, nil
}
