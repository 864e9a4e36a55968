package agent

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/services/sos/wire"
)

// source is the sending half of a session. It reads the end host and distributes the chunks to the
// connections' writers. One writer at a time has the turn to read. It keeps the turn as long as its
// connection accepts the bytes at once, and gives the turn away before it waits.
type source struct {
	s   *session
	end *endHost // nil until the end host is connected
	in  *rawReader

	mu       sync.Mutex
	cond     *sync.Cond
	turn     *conn // the writer whose turn it is to read, or nil
	waiting  int   // writers in cond.Wait
	nudged   bool  // whether nudge has woken the writer that waits for the end host
	nextSeq  uint64
	sent     uint64 // cost, in window, of the chunks numbered so far
	limit    uint64 // limit granted by the peer
	resend   []*chunk
	pending  int    // chunks numbered and not confirmed
	held     uint64 // cost, in window, of the pending chunks
	maxHeld  uint64 // bound of held; more is permitted while Acks may be delayed, see hasRoom
	finished bool   // whether the last chunk has been numbered
	arrived  bool   // whether the peer has reported that it has all chunks
	lastFlag wire.Flags
	stopped  bool

	bytes  atomic.Uint64
	chunks atomic.Uint64
	resent atomic.Uint64
}

// newSource returns the source of a session. maxHeld bounds the cost of the chunks that the peer has
// not confirmed.
func newSource(s *session, maxHeld int) *source {
	o := &source{s: s, limit: wire.FirstCredit, maxHeld: uint64(maxHeld)}
	o.cond = sync.NewCond(&o.mu)
	return o
}

// start begins to read the end host.
func (o *source) start(e *endHost) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end, o.in = e, newRawReader(e.rc)
	o.cond.Broadcast()
}

// grant raises the credit limit. The limit never decreases, so grants may arrive in any order.
func (o *source) grant(limit uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if limit > o.limit {
		o.limit = limit
		o.cond.Signal()
	}
}

// take returns the next chunk for w, or nil if w has to stop. It returns chunks that have to be
// sent again first.
func (o *source) take(w *conn) *chunk {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		switch {
		case o.stopped || w.leaving.Load():
			o.dropTurn(w)
			o.cond.Signal() // the wake-up that w received may have been meant for another writer
			return nil
		case len(o.resend) > 0:
			c := o.resend[0]
			o.resend = o.resend[1:]
			return c
		case o.mayRead(w):
			o.turn = w
			o.mu.Unlock()
			c := o.read()
			o.mu.Lock()
			if c != nil {
				return c
			}
			continue
		}
		o.dropTurn(w)
		o.waiting++
		o.cond.Wait()
		o.waiting--
	}
}

// mayRead reports whether the writer w may read the end host now.
func (o *source) mayRead(w *conn) bool {
	return (o.turn == nil || o.turn == w) && o.end != nil && !o.finished && o.hasRoom()
}

// hasRoom reports whether another chunk may be read. It does not rely on the peer's credit alone,
// because every chunk is kept until the peer confirms it: a peer that grants much and confirms
// nothing must not take more than a session's memory. A peer that confirms as it should may hold
// back the confirmations of ackEvery chunks on each connection. mu is held.
func (o *source) hasRoom() bool {
	chunk := uint64(o.s.params.ChunkBytes) + wire.ChunkCost
	delayed := uint64(ackEvery*len(*o.s.conns.Load())) * chunk
	return o.sent+wire.ChunkCost < o.limit && o.held+chunk <= o.maxHeld+delayed
}

// pass gives away the turn, if w has it, because w is about to wait for its connection.
func (o *source) pass(w *conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropTurn(w)
}

func (o *source) dropTurn(w *conn) {
	if o.turn == w {
		o.turn = nil
		o.cond.Signal()
	}
}

// nudge wakes all writers, including the one that waits for the end host's bytes. mu is held.
func (o *source) nudge() {
	o.cond.Broadcast()
	if o.turn != nil && o.end != nil && !o.nudged {
		o.nudged = true
		_ = o.end.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// wake makes every writer check whether it has to stop.
func (o *source) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nudge()
}

// stop ends the source, and makes the writers return.
func (o *source) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	o.nudge()
}

// read returns the next chunk of the end host's data, or nil if it was nudged or the source was
// stopped.
func (o *source) read() *chunk {
	c := &chunk{}
	n, err := o.fill(c)
	nudged := errors.Is(err, os.ErrDeadlineExceeded)
	if n == 0 && !nudged {
		c.flags = o.s.endFlag(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if nudged {
		c.release(o.s.agent.pipes, o.s.mem)
		o.nudged = false
		_ = o.end.conn.SetReadDeadline(time.Time{})
		return nil
	}
	if n == 0 {
		c.release(o.s.agent.pipes, o.s.mem)
		if o.stopped {
			return nil
		}
		o.finished, o.lastFlag = true, c.flags
	}
	c.seq, c.size = o.nextSeq, n
	o.nextSeq++
	o.pending++
	o.sent += c.header().Cost()
	o.held += c.header().Cost()
	o.s.noteProgress(o.bytes.Add(uint64(n)))
	o.chunks.Add(1)
	return c
}

// fill moves the payload of up to a chunk into c, as far as the credit limit permits.
func (o *source) fill(c *chunk) (int, error) {
	o.mu.Lock()
	size := int(min(uint64(o.s.params.ChunkBytes), o.limit-o.sent-wire.ChunkCost))
	o.mu.Unlock()
	if o.s.copying {
		c.mem = o.s.mem.get(size)
		return o.in.read(c.mem[:size])
	}
	p, err := o.s.agent.pipes.get()
	if err != nil {
		o.s.fail(err)
		return 0, err
	}
	c.out = p
	n, _, err := o.in.splice(p, size)
	return n, err
}

// confirmed handles chunks that the peer has confirmed.
func (o *source) confirmed(done []*chunk) {
	cost := uint64(0)
	for _, c := range done {
		cost += c.header().Cost()
		c.release(o.s.agent.pipes, o.s.mem)
	}
	o.mu.Lock()
	if !o.arrived {
		hadRoom := o.hasRoom()
		o.pending -= len(done)
		o.held -= cost
		if !hadRoom {
			o.cond.Signal()
		}
	}
	over := o.finished && o.pending == 0
	o.mu.Unlock()
	if over {
		o.s.checkComplete()
	}
}

// released is called when the peer has released a connection, which it does only once it has
// received every chunk. Chunks that it has not confirmed arrived on a connection that was lost, and
// need not be sent again.
func (o *source) released() {
	o.mu.Lock()
	over := o.finished && !o.arrived
	if over {
		o.arrived, o.pending, o.held = true, 0, 0
		for _, c := range o.resend {
			c.release(o.s.agent.pipes, o.s.mem)
		}
		o.resend = nil
	}
	o.mu.Unlock()
	if over {
		o.s.checkComplete()
	}
}

// lost takes back the unconfirmed chunks of a lost connection, so that they are sent again.
func (o *source) lost(chunks []*chunk) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped || o.arrived {
		for _, c := range chunks {
			c.release(o.s.agent.pipes, o.s.mem)
		}
		return
	}
	for _, c := range chunks {
		c.lost(o.s.agent.pipes)
	}
	o.resent.Add(uint64(len(chunks)))
	o.resend = append(o.resend, chunks...)
	wire.SortChunks(o.resend, func(c *chunk) uint64 { return c.seq })
	if len(o.resend) > 0 {
		if o.waiting > 0 {
			o.cond.Broadcast()
		} else {
			o.nudge()
		}
	}
}

// done returns the flag of the last chunk, and reports whether the peer has confirmed all chunks of
// this direction.
func (o *source) done() (flag wire.Flags, done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lastFlag, o.finished && o.pending == 0
}

// ended reports whether the end host has ended this direction.
func (o *source) ended() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.finished
}

// blocked reports whether the peer keeps the source from reading, because it grants no credit or
// confirms nothing.
func (o *source) blocked() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.turn == nil && !o.finished && !o.hasRoom()
}

// drop releases the chunks that would have to be sent again. It is called after the session's end.
func (o *source) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.resend {
		c.release(o.s.agent.pipes, o.s.mem)
	}
	o.resend = nil
}
