package network

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// output is the way to one switch. Messages are appended to one of two queues
// and leave in batches: control messages first, then packet-outs. Whoever
// flushes tries to write at once without waiting; only if the socket takes no
// more does the writer goroutine carry on, so nobody else ever waits for a slow
// switch.
type output struct {
	conn     net.Conn
	raw      syscall.RawConn // nil where writing without waiting is impossible (TLS, pipes)
	timeout  time.Duration
	limit    int // bytes of the control queue
	pktLimit int // bytes of the packet queue

	mu      sync.Mutex
	control []byte
	packets []byte
	busy    bool // somebody is writing, and will write what is queued meanwhile
	err     error

	// These belong to whoever has set busy.
	out     []byte
	written int
	tryFn   func(fd uintptr) bool
	tryErr  error

	wake    signal
	sent    messageCounts
	dropped atomic.Uint64
	writes  atomic.Uint64
}

func newOutput(conn net.Conn, c *Config) *output {
	o := &output{conn: conn, timeout: c.EchoTimeout, limit: c.ControlBytes, pktLimit: c.PacketOutBytes, wake: newSignal()}
	if sc, ok := conn.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			o.raw = raw
			o.tryFn = o.try
		}
	}
	return o
}

// lockControl gives the control queue to append to; unlockControl takes it back.
// The pair keeps the hot path free of callbacks.
func (o *output) lockControl() []byte {
	o.mu.Lock()
	return o.control
}

func (o *output) unlockControl(b []byte) {
	o.control = b
	if len(b) > o.limit && o.err == nil {
		o.fail(ErrBusy)
	}
	if o.err != nil {
		o.control = o.control[:0]
	}
	o.mu.Unlock()
}

// lockPackets gives the packet queue to append one packet-out of about n bytes
// to. When the queue is full it counts a drop and returns false, without the lock.
func (o *output) lockPackets(n int) ([]byte, bool) {
	o.mu.Lock()
	if len(o.packets)+n > o.pktLimit || o.err != nil {
		o.mu.Unlock()
		o.dropped.Add(1)
		return nil, false
	}
	return o.packets, true
}

func (o *output) unlockPackets(b []byte) {
	o.packets = b
	o.mu.Unlock()
}

// fail ends the output; the lock is held. Closing the connection ends the
// session's reader as well.
func (o *output) fail(err error) {
	if o.err == nil {
		o.err = err
		_ = o.conn.Close()
	}
	o.control, o.packets = o.control[:0], o.packets[:0]
}

// take moves what is queued to the writer's buffer; the lock is held.
func (o *output) take() bool {
	if o.err != nil || len(o.control)+len(o.packets) == 0 {
		return false
	}
	if len(o.packets) == 0 {
		o.out, o.control = o.control, o.out[:0]
	} else {
		o.out = append(append(o.out[:0], o.control...), o.packets...)
		o.control, o.packets = o.control[:0], o.packets[:0]
	}
	o.written = 0
	o.sent.addAll(o.out)
	return true
}

// flush writes what is queued as far as the socket takes it at once.
func (o *output) flush() {
	o.mu.Lock()
	for !o.busy && o.take() {
		o.busy = true
		o.mu.Unlock()
		if o.raw == nil || !o.tryWrite() {
			o.wake.set()
			return // busy stays set: the writer goroutine has the turn now
		}
		o.mu.Lock()
		o.busy = false
		if o.tryErr != nil {
			o.fail(o.tryErr)
		}
	}
	o.mu.Unlock()
}

// tryWrite reports whether the whole buffer was written, or an error was met.
func (o *output) tryWrite() bool {
	o.tryErr = nil
	if err := o.raw.Write(o.tryFn); err != nil {
		o.tryErr = err
	}
	return o.tryErr != nil || o.written == len(o.out)
}

func (o *output) try(fd uintptr) bool {
	for o.written < len(o.out) {
		n, err := syscall.Write(int(fd), o.out[o.written:])
		o.writes.Add(1)
		if n > 0 {
			o.written += n
		}
		switch err {
		case nil, syscall.EINTR:
		case syscall.EAGAIN:
			return true
		default:
			o.tryErr = err
			return true
		}
	}
	return true
}

// keepBuffer is how much of a buffer outlives the burst that needed it.
const keepBuffer = 1 << 20

// trim gives back large buffers that are empty; the lock is held, and nobody writes.
func (o *output) trim() {
	if cap(o.out) > keepBuffer {
		o.out = nil
	}
	if cap(o.control) > keepBuffer && len(o.control) == 0 {
		o.control = nil
	}
}

// run is the writer goroutine. It ends when done is closed.
func (o *output) run(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-o.wake:
			o.drain()
		}
	}
}

// drain writes until nothing is queued. busy is set by whoever woke us.
func (o *output) drain() {
	for {
		_ = o.conn.SetWriteDeadline(time.Now().Add(o.timeout))
		_, err := o.conn.Write(o.out[o.written:])
		o.writes.Add(1)
		o.mu.Lock()
		if err != nil {
			o.fail(err)
		}
		if !o.take() {
			// A deadline that passes would fail the next write that does not wait.
			_ = o.conn.SetWriteDeadline(time.Time{})
			o.busy = false
			o.trim()
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
	}
}
