package agent

import (
	"io"

	"github.com/sluice-net/sluice/services/sos/wire"
)

// ackEvery is the number of received chunks after which a connection sends an Ack at once.
const ackEvery = 8

// readLoop handles the peer's frames until the connection ends. It never waits for an end host.
func (c *conn) readLoop() error {
	var head [wire.HeaderSize]byte
	for {
		if err := c.readFull(head[:]); err != nil {
			return err
		}
		c.heard.Store(c.s.agent.now())
		h, err := wire.ParseHeader(head[:])
		if err != nil {
			return err
		}
		if err := c.handle(h); err != nil {
			return err
		}
	}
}

// readAnswer reads the peer's answer to the opening, if one is expected. It sets no deadline,
// because tick fails the connection if nothing is received.
func (c *conn) readAnswer() error {
	if c.opening == nil {
		return nil
	}
	err := checkAnswer(c.opening, c.s.req.Key[:], c.readFull)
	if err == nil {
		c.heard.Store(c.s.agent.now())
	}
	return err
}

func (c *conn) readFull(b []byte) error {
	if c.raw != nil {
		return c.in.readFull(b)
	}
	_, err := io.ReadFull(c.net, b)
	return err
}

func (c *conn) handle(h wire.Header) error {
	switch h.Kind {
	case wire.Data:
		return c.receive(h)
	case wire.Ack:
		return c.confirm(h.Number)
	case wire.Window:
		c.s.out.grant(h.Number)
	case wire.Reset:
		c.reset.CompareAndSwap(0, uint64(wire.CauseEndHost)) // answers the Reset, unless this side has sent one itself
		c.s.peerReset(wire.Cause(h.Number))
		return errReleased
	case wire.Release:
		c.s.out.released()
		return errReleased
	}
	return nil
}

// confirm handles an Ack with the given count.
func (c *conn) confirm(count uint64) error {
	c.qmu.Lock()
	done, ok := c.unconfirmed.Confirm(count)
	c.qmu.Unlock()
	if !ok {
		return errAck
	}
	c.s.out.confirmed(done)
	return nil
}

// receive receives the chunk that a Data header announces.
func (c *conn) receive(h wire.Header) error {
	r, err := c.s.in.begin(h)
	if err != nil {
		return err
	}
	switch {
	case r == nil:
		if err = c.discard(int(h.Length)); err == nil {
			c.received.Add(1)
		}
	case h.Length == 0:
		c.received.Add(1)
		c.s.in.received(r, 0)
		c.s.in.endReception(r)
	case c.raw == nil:
		err = c.receiveCopy(r)
	default:
		err = c.receiveSplice(r)
	}
	if err != nil {
		return err
	}
	// The last chunk is confirmed at once, together with all chunks before it, because the end of
	// the session waits for that.
	if h.Flags != 0 || c.s.in.closing() {
		c.s.sendAcks()
	} else if c.received.Load()-c.ackSent.Load() >= ackEvery {
		c.kick()
	}
	return nil
}

// noteReceived records n received bytes of r, of which left bytes are still to come. It counts the
// chunk as received before the chunk is passed on. Passing it on may complete the session, and the
// Ack for the chunk is then the last frame on this connection.
func (c *conn) noteReceived(r *reception, n, left int) {
	c.heard.Store(c.s.agent.now())
	if left == 0 {
		c.received.Add(1)
	}
	c.s.in.received(r, n)
}

// receiveSplice moves the chunk's payload into pipes as it arrives.
func (c *conn) receiveSplice(r *reception) error {
	defer c.s.in.endReception(r)
	full := false
	for left := r.size; left > 0; {
		p, err := c.s.in.tail(r, full)
		if err != nil {
			return err
		}
		var n int
		n, full, err = c.in.splice(p, left)
		if err != nil {
			return err
		}
		if full {
			continue
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		left -= n
		c.noteReceived(r, n, left)
	}
	return nil
}

// receiveCopy reads the chunk's payload into memory.
func (c *conn) receiveCopy(r *reception) error {
	defer c.s.in.endReception(r)
	m := c.s.in.memory(r)
	for left := r.size; left > 0; {
		n, err := c.net.Read(m[r.size-left : r.size])
		if n > 0 {
			left -= n
			c.noteReceived(r, n, left)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// discard reads and drops n bytes.
func (c *conn) discard(n int) error {
	if c.raw == nil {
		_, err := io.CopyN(io.Discard, c.net, int64(n))
		return err
	}
	p, err := c.s.agent.pipes.get()
	if err != nil {
		return err
	}
	defer c.s.agent.pipes.put(p)
	for n > 0 {
		m, _, err := c.in.splice(p, n)
		if err != nil {
			return err
		}
		if m == 0 {
			return io.ErrUnexpectedEOF
		}
		n -= m
		c.heard.Store(c.s.agent.now())
		if err := c.s.agent.pipes.discard(p, m); err != nil {
			return err
		}
	}
	return nil
}
