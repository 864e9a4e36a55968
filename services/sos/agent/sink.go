package agent

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/services/sos/wire"
)

// reception is a chunk that is arriving or waits to be passed on. The sink's mutex guards its
// fields.
type reception struct {
	seq       uint64
	size      int
	flags     wire.Flags
	received  int // bytes received
	forwarded int // bytes passed on, or skipped because an earlier reception of the chunk has passed them on
	pipes     []*pipe
	mem       []byte // copy mode
	refs      int    // references: the connection that receives, the list of waiting receptions, the pump
	listed    bool
}

// sink is the receiving half of a session. It puts the chunks in order and passes them on to the
// end host. As long as the end host accepts the bytes, the reader that receives them passes them on
// itself. If the end host does not, a goroutine of the sink waits for it, so that the connections
// to the peer are always read. The credit limits how much the peer may send ahead.
type sink struct {
	s   *session
	end *endHost
	out *rawWriter

	mu        sync.Mutex
	order     *wire.Ordered[*reception]
	passed    int // bytes of the next chunk that the end host has received
	pumping   bool
	discard   bool // whether nothing is passed on any more, although everything is received
	finished  bool // whether the direction's end has been passed on
	resetting bool
	consumed  uint64 // cost, in window, of the chunks that were passed on
	held      int
	window    window

	pumpWake chan struct{} // wakes the sink's goroutine
	limit    atomic.Uint64 // credit limit granted to the peer
	bytes    atomic.Uint64
	closed   atomic.Bool
}

func newSink(s *session, w window) *sink {
	k := &sink{s: s, window: w, order: wire.NewOrdered[*reception](uint64(2*w.most/wire.ChunkCost) + 2), pumpWake: make(chan struct{}, 1)}
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

// begin decides about an arriving chunk. It returns nil if the payload has to be dropped,
// and an error if the peer violates the protocol.
func (k *sink) begin(h wire.Header) (*reception, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &reception{seq: h.Number, size: int(h.Length), flags: h.Flags, refs: 2, listed: true}
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

// tail returns the pipe that the connection may fill with payload of r. If full is set, tail adds
// another pipe first.
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

// received records that n more bytes of r have arrived, and passes on the bytes whose turn it is.
func (k *sink) received(r *reception, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r.received += n
	k.held += n
	if r.received == r.size {
		k.complete(r)
	}
	if r.seq == k.order.Next() {
		k.pump(false)
	}
}

// endReception is called when the connection no longer receives r, because all of it has arrived or
// the connection was lost.
func (k *sink) endReception(r *reception) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.received < r.size && k.order.Drop(r.seq, r) {
		k.unlist(r)
	}
	k.unref(r)
}

// complete records that all of r has arrived. Another reception of the same chunk may be listed in
// place of r, or may have been completed first. mu is held.
func (k *sink) complete(r *reception) {
	kept, old, replaced := k.order.Complete(r.seq, r)
	if replaced {
		k.unlist(old)
	}
	if kept && !r.listed {
		r.listed = true
		r.refs++
	}
}

// unlist removes r from the waiting receptions. mu is held.
func (k *sink) unlist(r *reception) {
	if r.listed {
		r.listed = false
		k.unref(r)
	}
}

// unref drops a reference to r, and releases the memory of r with the last one. mu is held.
func (k *sink) unref(r *reception) {
	r.refs--
	if r.refs > 0 {
		return
	}
	k.held -= r.received - r.forwarded
	for _, p := range r.pipes {
		k.s.agent.pipes.put(p)
	}
	if r.mem != nil {
		k.s.mem.put(r.mem)
	}
	r.pipes, r.mem = nil, nil
}

// maxInlinePieces bounds the pieces that a connection's reader passes on in a row, because the
// reader has to go on reading its connection.
const maxInlinePieces = 64

// pump passes on the next bytes, until none are left or the end host accepts no more. If wait is
// set, as by the sink's own goroutine, pump waits for the end host instead. mu is held, but
// released during system calls.
func (k *sink) pump(wait bool) {
	if k.pumping || k.finished || (k.end == nil && !k.discard) {
		return
	}
	k.pumping = true
	for pieces := 0; !k.finished; pieces++ {
		if !wait && pieces == maxInlinePieces {
			k.wakePump()
			break
		}
		r, complete, ok := k.order.Head()
		if !ok {
			break
		}
		if r.received == r.forwarded {
			if !complete {
				break
			}
			k.advance(r)
			continue
		}
		err := k.pass(r, wait)
		if err == unix.EAGAIN {
			k.wakePump()
			break
		}
		if err != nil {
			k.discard = true
			k.mu.Unlock()
			k.s.endHostBroken()
			k.mu.Lock()
		}
	}
	k.pumping = false
	k.grant()
}

// wakePump leaves the remaining bytes to the sink's goroutine.
func (k *sink) wakePump() {
	select {
	case k.pumpWake <- struct{}{}:
	default:
	}
}

// advance moves on to the next chunk. It is called when all of r, the head, has been passed on. mu
// is held.
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
		k.s.spawn(k.s.passReset)
	}
}

func (k *sink) finish() {
	k.finished = true
	k.closed.Store(true)
	k.mu.Unlock()
	k.s.checkComplete()
	k.mu.Lock()
}

// pass moves some bytes of r, the head, to the end host. mu is held, but released during the system
// call.
func (k *sink) pass(r *reception, wait bool) error {
	if k.discard {
		k.skip(r, r.received-r.forwarded)
		return nil
	}
	if n := min(k.passed, r.received) - r.forwarded; n > 0 {
		// An earlier reception of this chunk has passed these bytes on.
		k.skip(r, n)
		return nil
	}
	r.refs++
	avail := r.received - r.forwarded
	var p *pipe
	if r.mem == nil {
		p = r.pipes[0]
		avail = min(avail, int(p.held.Load()))
	}
	if avail == 0 {
		k.nextPipe(r)
		k.unref(r)
		return nil
	}
	m := r.mem
	from := r.forwarded
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
		r.forwarded += n
		k.held -= n
		k.passed = max(k.passed, r.forwarded)
		k.consumed += uint64(n)
		k.s.noteProgress(k.bytes.Add(uint64(n)))
		if p != nil && p.held.Load() == 0 && len(r.pipes) > 1 && r.pipes[0] == p {
			k.nextPipe(r)
		}
	}
	k.unref(r)
	return err
}

// nextPipe releases the first pipe of r, which is empty and no longer filled, if r has another.
func (k *sink) nextPipe(r *reception) {
	if len(r.pipes) > 1 {
		k.s.agent.pipes.put(r.pipes[0])
		r.pipes = r.pipes[1:]
	}
}

// skip drops n bytes from the front of r. mu is held.
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
	r.forwarded += n
	k.held -= n
	if k.discard {
		k.consumed += uint64(n)
	}
}

// grant raises the peer's credit limit once it can grow by a quarter of the window. mu is held.
func (k *sink) grant() {
	k.window.note(k.consumed, time.Now())
	limit := k.consumed + uint64(k.window.size)
	if limit-k.limit.Load() >= uint64(k.window.size/4) {
		k.limit.Store(limit)
		k.s.announceWindow()
	}
}

// run passes on the bytes for which pump has to wait, until the session is over.
func (k *sink) run() {
	for {
		select {
		case <-k.s.over:
			return
		case <-k.pumpWake:
		}
		k.mu.Lock()
		k.pump(true)
		k.mu.Unlock()
	}
}

// abandon makes the sink discard what it receives instead of passing it on.
func (k *sink) abandon() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.discard = true
	k.pump(false)
}

// drop releases the waiting receptions after the session's end.
func (k *sink) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.order.Drain() {
		k.unlist(r)
	}
}

// memory sets and returns r's buffer in copy mode.
func (k *sink) memory(r *reception) []byte {
	m := k.s.mem.get(r.size)
	k.mu.Lock()
	defer k.mu.Unlock()
	r.mem = m
	return m
}

// done reports whether the other end's direction has been passed on completely and did not end with
// a reset.
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

// broken reports whether the sink discards bytes, because the end host has refused some or abandon
// was called.
func (k *sink) broken() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.discard
}

// closing reports whether the direction is complete. Acknowledgements are then not delayed.
func (k *sink) closing() bool { return k.closed.Load() }

// windowInterval is the least time between two adjustments of the window. On a short path, a round
// trip reflects scheduling more than the path.
const windowInterval = 10 * time.Millisecond

// creditTrips is the number of round trips whose bytes a peer may send ahead. Two pass until the
// peer learns that data was consumed. Small chunks, which end hosts send while they start, cost
// twice as much as their bytes.
const creditTrips = 4

// window computes the size of the credit that a receiver grants. The size starts small and grows to
// four times the bytes that the end host consumes in a round trip. While that number is growing,
// the size grows to eight times it, because a sender in slow start is two round trips ahead of the
// receiver. So the window never limits a transfer that flows, and it stays small for a slow end
// host.
type window struct {
	size, most int
	rtt        func() time.Duration

	since time.Time
	base  uint64
	last  float64 // cost consumed in the previous round trip
}

// note records the cost of the chunks consumed so far, and may enlarge the window.
func (w *window) note(consumed uint64, now time.Time) {
	if w.size >= w.most {
		return
	}
	if w.since.IsZero() {
		w.since, w.base = now, consumed
		return
	}
	interval := max(w.rtt(), windowInterval)
	passed := now.Sub(w.since)
	if passed < interval {
		return
	}
	perTrip := float64(consumed-w.base) * float64(interval) / float64(passed)
	w.since, w.base = now, consumed
	factor := creditTrips
	if perTrip > 1.25*w.last {
		factor *= 2
	}
	w.last = perTrip
	w.size = min(w.most, max(w.size, int(float64(factor)*perTrip)))
}
