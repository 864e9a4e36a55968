package agent

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/sos/wire"
)

var (
	errTooFar   = fmt.Errorf("%w: chunk beyond the window", wire.ErrFrame)
	errReleased = errors.New("released")
	errAck      = fmt.Errorf("%w: confirms chunks that were not sent", wire.ErrFrame)
)

// conn is a data connection while it serves a session. Its reader is the
// goroutine that calls serve; its writer is a goroutine of its own. Control
// frames are written by whoever has news, unless a chunk is being written:
// then the writer adds them after it.
type conn struct {
	s     *session
	index int
	net   net.Conn
	// opening is what the peer has to answer before anything else that it says
	// counts; nil when it has.
	opening []byte
	raw     syscall.RawConn // nil in copy mode

	in  *rawReader // the reader's
	out *rawWriter // the writer's

	wmu        sync.Mutex // held while frames are written
	ctl        *rawWriter
	rest       []byte // begun control frames
	frames     [8 * wire.HeaderSize]byte
	windowSent uint64
	closedOut  bool // Release or Reset was sent: nothing may follow
	ackSent    atomic.Uint64

	dirty    atomic.Bool // control frames are due
	beat     atomic.Bool // a heartbeat is due
	received atomic.Uint64
	reset    atomic.Uint64
	release  atomic.Bool
	flush    chan struct{} // copy mode: wakes the flusher

	qmu         sync.Mutex
	unconfirmed wire.Unconfirmed[*chunk]

	heard   atomic.Int64 // when bytes last came, in nanoseconds of the agent's clock
	wrote   atomic.Int64
	leaving atomic.Bool // the writer is to stop
	backlog int         // the beat's: bytes that may be unsent
	earlier uint64      // segments sent again for the sessions that had it before
	failure atomic.Pointer[error]
	pacer   *pacer

	fmu  sync.Mutex // a leaf
	free bool       // the session is done with the connection, which another may have now
}

func newConn(s *session, index int, nc net.Conn) (*conn, error) {
	c := &conn{s: s, index: index, net: nc, flush: make(chan struct{}, 1), pacer: s.agent.pacers.of(s.pathOf(nc))}
	now := s.agent.now()
	c.heard.Store(now)
	c.wrote.Store(now)
	if stats, err := s.stats(nc); err == nil {
		c.earlier = stats.Retransmits
	}
	if s.copying {
		return c, nil
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("connection to %v cannot be spliced", nc.RemoteAddr())
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	c.raw = raw
	c.in, c.out, c.ctl = newRawReader(raw), newRawWriter(raw), newRawWriter(raw)
	return c, nil
}

// retransmits counts the segments that were sent again for this session.
func (c *conn) retransmits() uint64 {
	stats, err := c.s.stats(c.net)
	if err != nil {
		return 0
	}
	return stats.Retransmits - min(stats.Retransmits, c.earlier)
}

// serve runs the connection until both sides have given it up in order, by Release or by
// Reset (nil), or until it fails. In both cases nothing of the session uses it afterwards;
// on failure it is closed.
func (c *conn) serve() error {
	var wg sync.WaitGroup
	wg.Go(c.writeLoop)
	stop := make(chan struct{})
	if c.raw == nil {
		wg.Go(func() { c.flushLoop(stop) })
	}
	c.kick() // the window
	err := c.readAnswer()
	if err == nil {
		err = c.readLoop()
	}
	if !errors.Is(err, errReleased) {
		c.fail(err)
	}
	// A chunk that is being sent is sent to its end; a peer that does not read it loses the connection.
	_ = c.net.SetWriteDeadline(time.Now().Add(c.s.agent.cfg.OpeningTimeout))
	c.leaving.Store(true)
	c.s.out.wake()
	close(stop)
	wg.Wait()
	if c.failure.Load() == nil {
		if err := c.finishRelease(); err != nil {
			c.fail(err)
		}
	}
	c.qmu.Lock()
	lost := c.unconfirmed.Lost()
	c.qmu.Unlock()
	c.s.out.lost(lost)
	return c.leave()
}

// leave separates the connection from its session, so that another session can have it, and
// returns why it failed, if it did.
func (c *conn) leave() error {
	c.fmu.Lock()
	defer c.fmu.Unlock()
	if f := c.failure.Load(); f != nil {
		return *f
	}
	c.free = true
	return c.net.SetReadDeadline(time.Time{})
}

// fail closes the connection; reader and writer return.
func (c *conn) fail(err error) {
	if err == nil {
		err = errors.New("closed")
	}
	c.fmu.Lock()
	defer c.fmu.Unlock()
	if !c.free && c.failure.CompareAndSwap(nil, &err) {
		c.leaving.Store(true)
		resetNow(c.net)
	}
}

// end takes leave of the connection at the session's end. It tells the peer the cause, if
// there is one, and what the peer still sends is dropped until its own Reset: then the
// connection is free for another session. With cause 0 it waits for the peer's Reset only.
// A peer that needs no cause, because its side has ended first, is not sent megabytes that
// it would drop: then the connection is closed.
func (c *conn) end(cause wire.Cause) {
	if c.s.peerEnded.Load() && c.unacked() > maxDropped {
		c.fail(errOver)
		return
	}
	if cause != 0 {
		c.reset.CompareAndSwap(0, uint64(cause))
		c.kick()
	}
	c.fmu.Lock()
	defer c.fmu.Unlock()
	if !c.free {
		_ = c.net.SetReadDeadline(time.Now().Add(2 * c.s.agent.cfg.ResetDrain))
	}
}

// maxDropped is how many bytes may be on their way to a peer that drops them, for the sake of
// keeping their connection.
const maxDropped = 1 << 20

// unacked returns how many bytes the peer has not acknowledged, 0 for a closed socket.
func (c *conn) unacked() int {
	return unackedOf(func(f func(fd int) error) error { return onSocket(c.net, f) })
}

// writeLoop sends the chunks that it is dealt.
func (c *conn) writeLoop() {
	pass := func() { c.s.out.pass(c) }
	for !c.leaving.Load() {
		// First the room, then the chunk: a chunk taken by a connection that
		// cannot send it would hold all others up.
		if c.raw != nil {
			if err := c.out.waitWritable(pass); err != nil {
				c.fail(err)
				break
			}
		}
		ch := c.s.out.take(c)
		if ch == nil {
			break
		}
		if err := c.sendChunk(ch, pass); err != nil {
			c.fail(err)
			break
		}
	}
	c.s.out.pass(c)
}

// sendChunk writes one chunk. From its first byte on it counts as sent; if the
// connection fails, it is among the lost ones.
func (c *conn) sendChunk(ch *chunk, pass func()) error {
	out := ch.out
	if out != nil {
		if err := ch.keep(c.s.agent.pipes); err != nil {
			c.s.out.lost([]*chunk{ch})
			return err
		}
		// From here on the pipe being sent is the writer's alone: a confirmation
		// gives back only what is kept.
		defer c.s.agent.pipes.put(out)
	}
	mem := ch.mem // once it counts as sent, a confirmation may take it from the chunk
	c.wmu.Lock()
	defer c.unlock()
	c.qmu.Lock()
	c.unconfirmed.Push(ch)
	c.qmu.Unlock()
	if err := c.finishControl(pass); err != nil {
		return err
	}
	c.wrote.Store(c.s.agent.now())
	head := ch.header().AppendTo(c.frames[:0])
	switch {
	case c.raw == nil:
		return c.copyChunk(head, mem[:ch.size], pass)
	case ch.size == 0:
		return c.out.write(head, 0, pass)
	}
	size := ch.size
	if err := c.out.write(head, unix.MSG_MORE, pass); err != nil {
		return err
	}
	if mem != nil {
		return c.out.write(mem, 0, pass)
	}
	return c.out.splice(out, size, pass)
}

// copyChunk writes one chunk in copy mode.
func (c *conn) copyChunk(head, payload []byte, pass func()) error {
	pass() // a write through TLS may wait without telling
	if _, err := c.net.Write(head); err != nil {
		return err
	}
	if len(payload) == 0 {
		return nil
	}
	_, err := c.net.Write(payload)
	return err
}

// unlock ends the writing of frames, after the control frames that became due.
func (c *conn) unlock() {
	if c.raw != nil && c.dirty.Swap(false) && c.failure.Load() == nil {
		c.control()
	}
	c.wmu.Unlock()
	if c.dirty.Load() {
		c.kick()
	}
}

// kick has the control frames written that are due: now if possible, else by
// whoever writes at present.
func (c *conn) kick() {
	c.dirty.Store(true)
	if c.raw == nil {
		select {
		case c.flush <- struct{}{}:
		default:
		}
		return
	}
	for c.dirty.Load() && c.wmu.TryLock() {
		c.dirty.Store(false)
		more := c.control()
		c.wmu.Unlock()
		if !more {
			return
		}
	}
}

// flushLoop writes the control frames in copy mode, where a write may wait.
func (c *conn) flushLoop(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-c.flush:
		}
		c.wmu.Lock()
		c.dirty.Store(false)
		if b := c.due(nil); len(b) > 0 {
			if _, err := c.net.Write(b); err != nil {
				c.fail(err)
			}
		}
		c.wmu.Unlock()
	}
}

// control writes what is due without waiting; wmu is held. It reports false
// when the socket takes no more: then the next chunk or beat tries again.
func (c *conn) control() bool {
	b := c.due(append(c.frames[:0], c.rest...))
	c.rest = nil
	for len(b) > 0 {
		n, err := c.ctl.tryWrite(b)
		if err == unix.EAGAIN {
			c.rest = append([]byte(nil), b...)
			c.dirty.Store(true)
			return false
		}
		if err != nil {
			c.fail(err)
			return false
		}
		b = b[n:]
	}
	return true
}

// finishControl completes control frames that were begun; wmu is held.
func (c *conn) finishControl(pass func()) error {
	if len(c.rest) == 0 {
		return nil
	}
	err := c.out.write(c.rest, 0, pass)
	c.rest = nil
	return err
}

// due appends the control frames that are due; wmu is held.
func (c *conn) due(b []byte) []byte {
	if c.closedOut {
		return b
	}
	if n := c.received.Load(); n != c.ackSent.Load() {
		c.ackSent.Store(n)
		b = wire.Header{Kind: wire.Ack, Number: n}.AppendTo(b)
	}
	if n := c.s.in.limit.Load(); n != c.windowSent || (c.beat.Swap(false) && len(b) == 0) {
		c.windowSent = n
		b = wire.Header{Kind: wire.Window, Number: n}.AppendTo(b)
	}
	if n := c.reset.Load(); n != 0 {
		c.closedOut = true
		b = wire.Header{Kind: wire.Reset, Number: n}.AppendTo(b)
	} else if c.release.Load() {
		c.closedOut = true
		b = wire.Header{Kind: wire.Release}.AppendTo(b)
	}
	c.wrote.Store(c.s.agent.now())
	return b
}

// finishRelease sends the session's last frame on this connection, unless it has been sent.
func (c *conn) finishRelease() error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.release.Store(true)
	if err := c.net.SetWriteDeadline(time.Now().Add(c.s.agent.cfg.OpeningTimeout)); err != nil {
		return err
	}
	b := c.due(append([]byte(nil), c.rest...))
	c.rest = nil
	if _, err := c.net.Write(b); err != nil {
		return err
	}
	return c.net.SetWriteDeadline(time.Time{})
}

// tick runs every beat: it sends a heartbeat on a connection that was quiet and
// gives up one from which nothing is heard.
func (c *conn) tick(now int64) {
	cfg := &c.s.agent.cfg
	if time.Duration(now-c.heard.Load()) > cfg.ConnTimeout {
		c.fail(errSilent)
		return
	}
	if time.Duration(now-c.wrote.Load()) >= cfg.Beat || c.received.Load() != c.ackSent.Load() {
		c.beat.Store(true)
		c.kick()
	} else if c.dirty.Load() {
		c.kick()
	}
}

// maxBacklog bounds the unsent bytes of a connection, however fast it is.
const maxBacklog = 16 << 20

// adapt lets a fast connection hold more unsent bytes: as many as it sends in
// the time in which the agent may be late. Too few make it run dry, and bbr
// then takes the agent's lateness for the path's limit.
func (c *conn) adapt(stats LinkStats) {
	least := max(longBacklog, c.s.agent.cfg.NotSentLowat)
	want := min(max(least, int(float64(stats.Rate)*c.s.agent.cfg.Lateness.Seconds())), max(least, maxBacklog))
	if c.backlog == 0 {
		c.backlog = least
	}
	if want > c.backlog+c.backlog/4 || want < c.backlog/2 {
		if c.s.transport().Backlog(c.net, want) == nil {
			c.backlog = want
		}
	}
}
