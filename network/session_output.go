package network

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// output is the way to one switch. Messages are appended to one of two queues
// and leave in batches: control messages first, then packet-outs. Whoever
// flushes tries to write at once without waiting; only if the socket takes no
// more does the writer goroutine carry on, so nobody else ever waits for a slow
// switch. Except answers to echo requests: their reader waits, so that who does
// not read is not read from.
type output struct {
	conn        net.Conn
	raw         syscall.RawConn // nil where writing without waiting is impossible (TLS, pipes)
	timeout     time.Duration
	packetLimit int // bytes of the packet queue
	account     *account

	mu           sync.Mutex
	control      []byte
	packets      []byte
	charged      int  // bytes that the account has for the three buffers
	echoesQueued int  // bytes of answers to echo requests that are queued
	busy         bool // somebody is writing, and will write what is queued meanwhile
	err          error

	// These belong to whoever has set busy.
	out           []byte
	written       int
	echoesInWrite int // bytes of answers to echo requests that are being written; guarded by mu
	writeFn       func(fd uintptr) bool
	writeErr      error

	wake     signal
	answered signal // set when answers to echo requests have been written, or the output has failed
	sent     messageCounts
	dropped  atomic.Uint64
	writes   atomic.Uint64
}

func newOutput(conn net.Conn, c *Config, a *account) *output {
	o := &output{conn: conn, timeout: c.EchoTimeout, packetLimit: c.PacketOutBytes, account: a, wake: newSignal(), answered: newSignal()}
	if sc, ok := conn.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			o.raw = raw
			o.writeFn = o.writeNow
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
	if err := o.charge(); err != nil {
		o.fail(err)
	}
	o.mu.Unlock()
}

// charge has the account bear the memory of the buffers, as far as it has changed; the lock
// is held. An output that has failed keeps none.
func (o *output) charge() error {
	if o.err != nil {
		o.control, o.packets = nil, nil
	}
	size := cap(o.control) + cap(o.packets) + cap(o.out)
	if size > o.charged {
		if err := o.account.take(int64(size - o.charged)); err != nil {
			return err
		}
	} else if size < o.charged {
		o.account.release(int64(o.charged - size))
	}
	o.charged = size
	return nil
}

// maxEchoBytes is how many bytes of answers to echo requests may wait for a switch.
const maxEchoBytes = 1 << 16

// answerEcho queues the answer to an echo request, and reports whether it did: otherwise the
// switch has to read the answers before it.
func (o *output) answerEcho(request []byte) (bool, error) {
	b := o.lockControl()
	if waiting := o.echoesQueued + o.echoesInWrite; waiting > 0 && waiting+len(request) > maxEchoBytes && o.err == nil {
		o.mu.Unlock()
		return false, nil
	}
	b, err := echoReply(request).AppendTo(b, openflow.XID(request))
	o.echoesQueued += len(request)
	o.unlockControl(b)
	return true, err
}

// lockPackets gives the packet queue to append one packet-out of about n bytes
// to. When the queue is full it counts a drop and returns false, without the lock.
func (o *output) lockPackets(n int) ([]byte, bool) {
	o.mu.Lock()
	if len(o.packets)+n > o.packetLimit || o.err != nil {
		o.mu.Unlock()
		o.dropped.Add(1)
		return nil, false
	}
	return o.packets, true
}

// unlockPackets takes the queue back with what was appended. It counts a drop and returns
// false if there is no memory for that.
func (o *output) unlockPackets(b []byte) bool {
	defer o.mu.Unlock()
	if more := cap(b) - cap(o.packets); more > 0 {
		if !o.account.tryTake(int64(more)) {
			o.dropped.Add(1)
			return false
		}
		o.charged += more
	}
	o.packets = b
	return true
}

// fail ends the output; the lock is held. Closing the connection ends the
// session's reader as well.
func (o *output) fail(err error) {
	if o.err == nil {
		o.err = err
		_ = o.conn.Close()
	}
	o.answered.set()
	_ = o.charge() // it gives memory back
}

// takeQueued moves what is queued to the writer's buffer; the lock is held. Little of both queues
// leaves in one write.
func (o *output) takeQueued() bool {
	if o.err != nil || len(o.control)+len(o.packets) == 0 {
		return false
	}
	if len(o.control) > 0 {
		o.echoesInWrite, o.echoesQueued = o.echoesQueued, 0
	}
	switch {
	case len(o.packets) == 0:
		o.out, o.control = o.control, o.out[:0]
	case len(o.control) == 0:
		o.out, o.packets = o.packets, o.out[:0]
	case len(o.control)+len(o.packets) <= cap(o.out):
		o.out = append(append(o.out[:0], o.control...), o.packets...)
		o.control, o.packets = o.control[:0], o.packets[:0]
	case len(o.packets) <= cap(o.control)-len(o.control):
		o.out, o.control, o.packets = append(o.control, o.packets...), o.out[:0], o.packets[:0]
	default:
		o.out, o.control = o.control, o.out[:0]
	}
	o.written = 0
	o.sent.addAll(o.out)
	return true
}

// flush writes what is queued as far as the socket takes it at once.
func (o *output) flush() {
	o.mu.Lock()
	for !o.busy && o.takeQueued() {
		o.busy = true
		o.mu.Unlock()
		if o.raw == nil || !o.tryWrite() {
			o.wake.set()
			return // busy stays set: the writer goroutine has the turn now
		}
		o.mu.Lock()
		o.busy = false
		if o.writeErr != nil {
			o.fail(o.writeErr)
		}
		o.writeDone()
	}
	o.mu.Unlock()
}

// tryWrite reports whether the whole buffer was written, or an error was met.
func (o *output) tryWrite() bool {
	o.writeErr = nil
	if err := o.raw.Write(o.writeFn); err != nil {
		o.writeErr = err
	}
	return o.writeErr != nil || o.written == len(o.out)
}

func (o *output) writeNow(fd uintptr) bool {
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
			o.writeErr = err
			return true
		}
	}
	return true
}

// maxKeptBuffer is how much of a buffer outlives the burst that needed it.
const maxKeptBuffer = 64 << 10

// writeDone follows a write of the whole buffer: it gives back what is large and empty; the lock is held.
func (o *output) writeDone() {
	if o.out = o.out[:0]; cap(o.out) > maxKeptBuffer {
		o.out = nil
	}
	if cap(o.control) > maxKeptBuffer && len(o.control) == 0 {
		o.control = nil
	}
	if cap(o.packets) > maxKeptBuffer && len(o.packets) == 0 {
		o.packets = nil
	}
	_ = o.charge() // it gives memory back
	if o.echoesInWrite > 0 {
		o.echoesInWrite = 0
		o.answered.set()
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
		o.writeDone()
		if !o.takeQueued() {
			// A deadline that passes would fail the next write that does not wait.
			_ = o.conn.SetWriteDeadline(time.Time{})
			o.busy = false
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
	}
}
