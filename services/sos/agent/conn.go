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

	"github.com/sluice-net/sluice/services/sos/wire"
)

var (
	errTooFar   = fmt.Errorf("%w: chunk beyond the window", wire.ErrFrame)
	errReleased = errors.New("released")
	errAck      = fmt.Errorf("%w: confirms chunks that were not sent", wire.ErrFrame)
)

// conn is a data connection while it serves a session. Its reader is the goroutine that calls
// serve, and its writer is another goroutine. A control frame is written by the goroutine that
// causes it. If a chunk is being written at that moment, the writer adds the frame after the chunk.
type conn struct {
	s     *session
	index int
	net   net.Conn
	// opening is the opening that the peer has to answer before its frames are accepted. It is nil
	// if the peer has answered already.
	opening []byte
	raw     syscall.RawConn // nil in copy mode

	in  *rawReader // used by the reader
	out *rawWriter // used by the writer

	wmu        sync.Mutex // held while frames are written
	ctl        *rawWriter
	rest       []byte // partly written control frames
	frames     [8 * wire.HeaderSize]byte
	windowSent uint64
	outClosed  bool // whether Release or Reset was sent, after which nothing may follow
	ackSent    atomic.Uint64

	controlDue atomic.Bool // whether control frames are due
	beat       atomic.Bool // whether a heartbeat is due
	received   atomic.Uint64
	reset      atomic.Uint64
	release    atomic.Bool
	flush      chan struct{} // copy mode: wakes the flusher

	qmu         sync.Mutex
	unconfirmed wire.Unconfirmed[*chunk]

	heard             atomic.Int64 // when bytes were last received, in nanoseconds of the agent's clock
	wrote             atomic.Int64
	leaving           atomic.Bool // whether the writer has to stop
	backlog           int         // bytes that may be unsent; used by the periodic work
	retransmitsBefore uint64      // segments that were retransmitted for earlier sessions on the connection
	failure           atomic.Pointer[error]
	pacer             *pacer

	fmu      sync.Mutex // a leaf: nothing else is locked under it
	detached bool       // whether the session no longer uses the connection, so that another may
}

func newConn(s *session, index int, nc net.Conn) (*conn, error) {
	c := &conn{s: s, index: index, net: nc, flush: make(chan struct{}, 1), pacer: s.agent.pacers.of(s.pathOf(nc))}
	now := s.agent.now()
	c.heard.Store(now)
	c.wrote.Store(now)
	if stats, err := s.stats(nc); err == nil {
		c.retransmitsBefore = stats.Retransmits
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

// retransmits returns the number of segments that were retransmitted for this session.
func (c *conn) retransmits() uint64 {
	stats, err := c.s.stats(c.net)
	if err != nil {
		return 0
	}
	return stats.Retransmits - min(stats.Retransmits, c.retransmitsBefore)
}

// serve runs the connection until both sides have given it up in order, by Release or by Reset, and
// then returns nil. If the connection fails, serve closes it and returns the error. In both cases
// nothing of the session uses the connection afterwards.
func (c *conn) serve() error {
	var wg sync.WaitGroup
	wg.Go(c.writeLoop)
	stop := make(chan struct{})
	if c.raw == nil {
		wg.Go(func() { c.flushLoop(stop) })
	}
	c.kick() // sends the initial window
	err := c.readAnswer()
	if err == nil {
		err = c.readLoop()
	}
	if !errors.Is(err, errReleased) {
		c.fail(err)
	}
	// A chunk that is being sent is completed. If the peer does not read it within the deadline,
	// the connection is lost.
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

// leave separates the connection from its session, so that another session can use it. If the
// connection has failed, leave returns the cause.
func (c *conn) leave() error {
	c.fmu.Lock()
	defer c.fmu.Unlock()
	if f := c.failure.Load(); f != nil {
		return *f
	}
	c.detached = true
	return c.net.SetReadDeadline(time.Time{})
}

// fail closes the connection, so that its reader and writer return.
func (c *conn) fail(err error) {
	if err == nil {
		err = errors.New("closed")
	}
	c.fmu.Lock()
	defer c.fmu.Unlock()
	if !c.detached && c.failure.CompareAndSwap(nil, &err) {
		c.leaving.Store(true)
		resetNow(c.net)
	}
}

// end gives up the connection at the session's end. If cause is not 0, it sends the cause to the
// peer, and drops what the peer still sends until the peer's own Reset. Another session can then
// use the connection. With cause 0 it only waits for the peer's Reset. A peer whose side has ended
// first drops all data that it still receives. If much data is unacknowledged then, the connection
// is closed instead.
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
	if !c.detached {
		_ = c.net.SetReadDeadline(time.Now().Add(2 * c.s.agent.cfg.ResetDrain))
	}
}

// maxDropped bounds the bytes in flight to a peer that drops them, up to which the connection is
// kept nevertheless.
const maxDropped = 1 << 20

// unacked returns the number of bytes that the peer's kernel has not acknowledged; 0 for a closed
// socket.
func (c *conn) unacked() int {
	return unackedOf(func(f func(fd int) error) error { return onSocket(c.net, f) })
}

// writeLoop sends the chunks that the source gives to this connection.
func (c *conn) writeLoop() {
	pass := func() { c.s.out.pass(c) }
	for !c.leaving.Load() {
		// First wait for room, then take a chunk: a chunk taken by a connection that cannot
		// send it would delay all others.
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

// sendChunk writes one chunk. The chunk counts as sent from its first byte on. If the connection
// fails, the chunk is among the lost ones and is sent again.
func (c *conn) sendChunk(ch *chunk, pass func()) error {
	out := ch.out
	if out != nil {
		if err := ch.keep(c.s.agent.pipes); err != nil {
			c.s.out.lost([]*chunk{ch})
			return err
		}
		// From here on, only the writer uses the pipe that is being sent, because a confirmation
		// releases only the retained pipe.
		defer c.s.agent.pipes.put(out)
	}
	mem := ch.mem // once the chunk counts as sent, a confirmation may clear this field
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
	pass() // a write through TLS may block without a notification
	if _, err := c.net.Write(head); err != nil {
		return err
	}
	if len(payload) == 0 {
		return nil
	}
	_, err := c.net.Write(payload)
	return err
}

// unlock unlocks wmu. Before that, it writes the control frames that became due while frames were
// being written.
func (c *conn) unlock() {
	if c.raw != nil && c.controlDue.Swap(false) && c.failure.Load() == nil {
		c.control()
	}
	c.wmu.Unlock()
	if c.controlDue.Load() {
		c.kick()
	}
}

// kick writes the control frames that are due. If another goroutine is writing at that moment, that
// goroutine writes them.
func (c *conn) kick() {
	c.controlDue.Store(true)
	if c.raw == nil {
		select {
		case c.flush <- struct{}{}:
		default:
		}
		return
	}
	for c.controlDue.Load() && c.wmu.TryLock() {
		c.controlDue.Store(false)
		more := c.control()
		c.wmu.Unlock()
		if !more {
			return
		}
	}
}

// flushLoop writes the control frames in copy mode, in a goroutine of its own because a write may
// block.
func (c *conn) flushLoop(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-c.flush:
		}
		c.wmu.Lock()
		c.controlDue.Store(false)
		if b := c.appendDue(nil); len(b) > 0 {
			if _, err := c.net.Write(b); err != nil {
				c.fail(err)
			}
		}
		c.wmu.Unlock()
	}
}

// control writes the control frames that are due without blocking. It returns false if the socket
// accepts no more; the next chunk or heartbeat then tries again. wmu is held.
func (c *conn) control() bool {
	b := c.appendDue(append(c.frames[:0], c.rest...))
	c.rest = nil
	for len(b) > 0 {
		n, err := c.ctl.tryWrite(b)
		if err == unix.EAGAIN {
			c.rest = append([]byte(nil), b...)
			c.controlDue.Store(true)
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

// finishControl completes partly written control frames. wmu is held.
func (c *conn) finishControl(pass func()) error {
	if len(c.rest) == 0 {
		return nil
	}
	err := c.out.write(c.rest, 0, pass)
	c.rest = nil
	return err
}

// appendDue appends the control frames that are due to b. wmu is held.
func (c *conn) appendDue(b []byte) []byte {
	if c.outClosed {
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
		c.outClosed = true
		b = wire.Header{Kind: wire.Reset, Number: n}.AppendTo(b)
	} else if c.release.Load() {
		c.outClosed = true
		b = wire.Header{Kind: wire.Release}.AppendTo(b)
	}
	c.wrote.Store(c.s.agent.now())
	return b
}

// finishRelease sends the session's last frame on this connection, unless that was sent before.
func (c *conn) finishRelease() error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.release.Store(true)
	if err := c.net.SetWriteDeadline(time.Now().Add(c.s.agent.cfg.OpeningTimeout)); err != nil {
		return err
	}
	b := c.appendDue(append([]byte(nil), c.rest...))
	c.rest = nil
	if _, err := c.net.Write(b); err != nil {
		return err
	}
	return c.net.SetWriteDeadline(time.Time{})
}

// tick runs at every tick of the session. It sends a heartbeat if the connection was quiet, and
// gives up the connection if nothing was received on it for ConnTimeout.
func (c *conn) tick(now int64) {
	cfg := &c.s.agent.cfg
	if time.Duration(now-c.heard.Load()) > cfg.ConnTimeout {
		c.fail(errSilent)
		return
	}
	if time.Duration(now-c.wrote.Load()) >= cfg.Beat || c.received.Load() != c.ackSent.Load() {
		c.beat.Store(true)
		c.kick()
	} else if c.controlDue.Load() {
		c.kick()
	}
}

// maxBacklog bounds the unsent bytes of a connection, however fast it is.
const maxBacklog = 16 << 20

// adaptBacklog lets a fast connection hold more unsent bytes: as many as it sends in the time by
// which the agent may be late. With fewer bytes the connection would run dry, and bbr would then
// take the agent's lateness for the limit of the path.
func (c *conn) adaptBacklog(stats ConnStats) {
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
