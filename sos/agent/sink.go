package agent

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/sos/wire"
)

// reception is a chunk that is arriving, or waits for its turn. Its fields are
// guarded by the sink's mutex.
type reception struct {
	seq    uint64
	size   int
	flags  wire.Flags
	got    int // bytes received
	gone   int // bytes that have left: passed on, or skipped as passed on before
	pipes  []*pipe
	mem    []byte // copy mode
	users  int    // the connection that receives, the list of waiting ones, the pump
	listed bool
}

// sink is the receiving half of a session: it puts the chunks in order and
// passes them on to the end host. Whoever brings the bytes that are next passes
// them on itself as long as the end host takes them; when it does not, a
// goroutine of the sink's own waits for it, so that the connections to the peer
// are always read. What the peer may send ahead is limited by its credit.
type sink struct {
	s   *session
	end *endHost
	out *rawWriter

	mu        sync.Mutex
	order     *wire.Ordered[*reception]
	passed    int // bytes of the next chunk that the end host has
	pumping   bool
	discard   bool // the end host is gone: take everything, pass on nothing
	finished  bool // the direction's end has been passed on
	resetting bool
	consumed  uint64 // what the chunks passed on have cost of the window
	held      int
	window    window

	stuck  chan struct{} // wakes the sink's goroutine
	limit  atomic.Uint64 // granted to the peer
	bytes  atomic.Uint64
	closed atomic.Bool
}

func newSink(s *session, w window) *sink {
	k := &sink{s: s, window: w, order: wire.NewOrdered[*reception](uint64(2*w.most/wire.ChunkCost) + 2), stuck: make(chan struct{}, 1)}
	k.limit.Store(uint64(w.size))
	return k
}

// start connects the sink to the end host.
func (k *sink) start(e *endHost) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end, k.out = e, newRawWriter(e.rc)
	k.pump(false)
}

// begin decides about an arriving chunk. It returns nil when the payload is to
// be dropped, and an error when the peer breaks the rules.
func (k *sink) begin(h wire.Header) (*reception, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &reception{seq: h.Number, size: int(h.Length), flags: h.Flags, users: 2, listed: true}
	decision, old := k.order.Begin(h.Number, r)
	switch decision {
	case wire.Discard:
		return nil, nil
	case wire.Reject:
		return nil, errTooFar
	case wire.Replace:
		k.unlist(old)
	case wire.Take:
		if k.held+r.size > 2*k.window.most {
			k.order.Drop(h.Number, r)
			return nil, errTooFar
		}
	}
	return r, nil
}

// tail returns the pipe that the connection may fill for r, a further one when full.
func (k *sink) tail(r *reception, full bool) (*pipe, error) {
	k.mu.Lock()
	if n := len(r.pipes); n > 0 && !full {
		p := r.pipes[n-1]
		k.mu.Unlock()
		return p, nil
	}
	k.mu.Unlock()
	p, err := k.s.agent.pipes.get()
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	r.pipes = append(r.pipes, p)
	k.mu.Unlock()
	return p, nil
}

// added notes that n more bytes of r have come, and passes on what can be.
func (k *sink) added(r *reception, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r.got += n
	k.held += n
	if r.got == r.size {
		k.complete(r)
	}
	if r.seq == k.order.Next() {
		k.pump(false)
	}
}

// leave says that the connection is done with r: all of it has come, or the
// connection died.
func (k *sink) leave(r *reception) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.got < r.size && k.order.Drop(r.seq, r) {
		k.unlist(r)
	}
	k.unuse(r)
}

// complete notes that all of r has come. Another reception of the same chunk
// may stand for it so far, or have come first; mu is held.
func (k *sink) complete(r *reception) {
	kept, old, replaced := k.order.Complete(r.seq, r)
	if replaced {
		k.unlist(old)
	}
	if kept && !r.listed {
		r.listed = true
		r.users++
	}
}

// unlist takes r from the waiting ones; mu is held.
func (k *sink) unlist(r *reception) {
	if r.listed {
		r.listed = false
		k.unuse(r)
	}
}

// unuse gives r's memory back after its last user; mu is held.
func (k *sink) unuse(r *reception) {
	r.users--
	if r.users > 0 {
		return
	}
	k.held -= r.got - r.gone
	for _, p := range r.pipes {
		k.s.agent.pipes.put(p)
	}
	if r.mem != nil {
		k.s.mem.put(r.mem)
	}
	r.pipes, r.mem = nil, nil
}

// fairShare is how many pieces a connection's reader passes on in one go: it
// has a connection to read.
const fairShare = 64

// pump passes on what is next, until there is nothing more or the end host
// takes no more. With wait, in the sink's own goroutine, it waits for the end
// host. mu is held, and let go during system calls.
func (k *sink) pump(wait bool) {
	if k.pumping || k.finished || (k.end == nil && !k.discard) {
		return
	}
	k.pumping = true
	for pieces := 0; !k.finished; pieces++ {
		if !wait && pieces == fairShare {
			k.handOver()
			break
		}
		r, complete, ok := k.order.Head()
		if !ok {
			break
		}
		if r.got == r.gone {
			if !complete {
				break
			}
			k.advance(r)
			continue
		}
		err := k.pass(r, wait)
		if err == unix.EAGAIN {
			k.handOver()
			break
		}
		if err != nil {
			k.discard = true
			k.mu.Unlock()
			k.s.endBroken()
			k.mu.Lock()
		}
	}
	k.pumping = false
	k.grant()
}

// handOver leaves the rest to the sink's goroutine.
func (k *sink) handOver() {
	select {
	case k.stuck <- struct{}{}:
	default:
	}
}

// advance is called when all of r, the head, has been passed on.
func (k *sink) advance(r *reception) {
	k.order.Advance()
	k.passed = 0
	if r.flags == 0 {
		k.consumed += wire.ChunkCost
	}
	k.unlist(r)
	switch {
	case k.discard && r.flags != 0:
		k.resetting = r.flags == wire.FlagRST
		k.finish()
	case r.flags == wire.FlagFIN:
		k.end.closeWrite()
		k.finish()
	case r.flags == wire.FlagRST:
		k.resetting, k.finished = true, true
		k.s.spawn(k.s.endByReset)
	}
}

func (k *sink) finish() {
	k.finished = true
	k.closed.Store(true)
	k.mu.Unlock()
	k.s.check()
	k.mu.Lock()
}

// pass moves some bytes of r, the head, to the end host. mu is held, and let go
// during the system call.
func (k *sink) pass(r *reception, wait bool) error {
	if k.discard {
		k.skip(r, r.got-r.gone)
		return nil
	}
	if n := min(k.passed, r.got) - r.gone; n > 0 {
		// An earlier reception of this chunk has passed these on.
		k.skip(r, n)
		return nil
	}
	r.users++
	avail := r.got - r.gone
	var p *pipe
	if r.mem == nil {
		p = r.pipes[0]
		avail = min(avail, int(p.held.Load()))
	}
	if avail == 0 {
		k.nextPipe(r)
		k.unuse(r)
		return nil
	}
	m := r.mem
	from := r.gone
	k.mu.Unlock()
	var n int
	var err error
	switch {
	case p == nil && wait:
		n, err = k.out.writeSome(m[from : from+avail])
	case p == nil:
		n, err = k.out.tryWrite(m[from : from+avail])
	case wait:
		n, err = k.out.spliceSome(p, avail)
	default:
		n, err = k.out.trySplice(p, avail)
	}
	k.mu.Lock()
	if n > 0 {
		r.gone += n
		k.held -= n
		k.passed = max(k.passed, r.gone)
		k.consumed += uint64(n)
		k.s.moved(k.bytes.Add(uint64(n)))
		if p != nil && p.held.Load() == 0 && len(r.pipes) > 1 && r.pipes[0] == p {
			k.nextPipe(r)
		}
	}
	k.unuse(r)
	return err
}

// nextPipe gives back r's first pipe, which is empty and no longer filled.
func (k *sink) nextPipe(r *reception) {
	if len(r.pipes) > 1 {
		k.s.agent.pipes.put(r.pipes[0])
		r.pipes = r.pipes[1:]
	}
}

// skip drops n bytes from the front of r; mu is held.
func (k *sink) skip(r *reception, n int) {
	for left := n; left > 0 && r.mem == nil; {
		m := min(left, int(r.pipes[0].held.Load()))
		if m > 0 && k.s.agent.pipes.discard(r.pipes[0], m) != nil {
			break
		}
		left -= m
		if left > 0 {
			k.nextPipe(r)
		}
	}
	r.gone += n
	k.held -= n
	if k.discard {
		k.consumed += uint64(n)
	}
}

// grant tells the peer, now and then, what it may send; mu is held.
func (k *sink) grant() {
	k.window.note(k.consumed, time.Now())
	limit := k.consumed + uint64(k.window.size)
	if limit-k.limit.Load() >= uint64(k.window.size/4) {
		k.limit.Store(limit)
		k.s.announce()
	}
}

// run waits for a slow end host, until the session is over.
func (k *sink) run() {
	for {
		select {
		case <-k.s.over:
			return
		case <-k.stuck:
		}
		k.mu.Lock()
		k.pump(true)
		k.mu.Unlock()
	}
}

// abandon makes the sink take everything and pass on nothing.
func (k *sink) abandon() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.discard = true
	k.pump(false)
}

// drop releases what waits, after the session's end.
func (k *sink) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.order.Drain() {
		k.unlist(r)
	}
}

// memory gives r its buffer in copy mode.
func (k *sink) memory(r *reception) []byte {
	m := k.s.mem.get(r.size)
	k.mu.Lock()
	defer k.mu.Unlock()
	r.mem = m
	return m
}

// done reports whether the other end's direction has been passed on to its end.
func (k *sink) done() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.finished && !k.resetting
}

// isReset reports whether the other end has reset its connection.
func (k *sink) isReset() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.resetting
}

// broken reports whether the end host refused bytes.
func (k *sink) broken() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.discard
}

// closing reports whether the direction is complete: then acks are not delayed.
func (k *sink) closing() bool { return k.closed.Load() }
