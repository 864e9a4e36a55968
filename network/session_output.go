package network

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// output queues and writes the messages to one switch. There are two queues, control messages and
// packet-outs, and control messages are written first. A flush tries to write at once without
// blocking; only if the socket is full does the writer goroutine continue, so that no caller waits
// for a slow switch. Answers to echo requests are the exception: the reader waits for them to be
// written, so that nothing is read from a switch that does not read.
type output struct {
	conn        net.Conn
	raw         syscall.RawConn // nil if writing without blocking is impossible (TLS, pipes)
	timeout     time.Duration
	packetLimit int // maximum length of the packet queue, in bytes
	account     *account

	mu           sync.Mutex
	control      []byte
	packets      []byte
	charged      int  // memory that the account has for the three buffers, in bytes
	echoesQueued int  // length of the queued answers to echo requests, in bytes
	busy         bool // a goroutine is writing, and will also write what is queued meanwhile
	err          error

	// The goroutine that has set busy owns the following fields.
	out           []byte
	written       int
	echoesInWrite int // length of the answers to echo requests in out, in bytes; guarded by mu
	writeFn       func(fd uintptr) bool
	writeErr      error

	wake     signal
	answered signal // set when answers to echo requests have been written, or the output has failed
	sent     messageCounts
	dropped  atomic.Uint64
	writes   atomic.Uint64
}

// newOutput returns the output for a connection.
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

// lockControl locks the output and returns the control queue, to append to. unlockControl takes
// the queue back. The pair avoids a callback in the hot path.
func (o *output) lockControl() []byte {
	o.mu.Lock()
	return o.control
}

// unlockControl takes the control queue back and unlocks the output.
func (o *output) unlockControl(b []byte) {
	o.control = b
	if err := o.charge(); err != nil {
		o.fail(err)
	}
	o.mu.Unlock()
}

// charge adjusts the account to the present size of the buffers. An output that has failed keeps
// no buffers. The lock is held.
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

// maxEchoBytes is the largest total length, in bytes, of the answers to echo requests that may wait
// for a switch to read them.
const maxEchoBytes = 1 << 16

// answerEcho queues the answer to an echo request, and reports whether it did. It queues nothing if
// too many earlier answers have not been written yet, because the switch does not read them.
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

// lockPackets locks the output and returns the packet queue, to which the caller appends one
// packet-out of about n bytes. If the queue is full, lockPackets counts a drop and returns false,
// and the output is not locked.
func (o *output) lockPackets(n int) ([]byte, bool) {
	o.mu.Lock()
	if len(o.packets)+n > o.packetLimit || o.err != nil {
		o.mu.Unlock()
		o.dropped.Add(1)
		return nil, false
	}
	return o.packets, true
}

// unlockPackets takes the queue back and unlocks the output. If there is no memory for what was
// appended it counts a drop and returns false.
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

// fail ends the output and closes the connection, which ends the session's reader as well. The
// lock is held.
func (o *output) fail(err error) {
	if o.err == nil {
		o.err = err
		_ = o.conn.Close()
	}
	o.answered.set()
	_ = o.charge() // this only releases memory, so it cannot fail
}

// takeQueued moves the queued messages to the writer's buffer and reports whether there are any.
// If both queues are short, they are written together. The lock is held.
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

// flush writes as much of the queues as the socket accepts at once.
func (o *output) flush() {
	o.mu.Lock()
	for !o.busy && o.takeQueued() {
		o.busy = true
		o.mu.Unlock()
		if o.raw == nil || !o.tryWrite() {
			o.wake.set()
			return // busy stays set: the writer goroutine continues
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

// tryWrite writes without blocking. It reports whether it is finished: the whole buffer was
// written, or an error occurred.
func (o *output) tryWrite() bool {
	o.writeErr = nil
	if err := o.raw.Write(o.writeFn); err != nil {
		o.writeErr = err
	}
	return o.writeErr != nil || o.written == len(o.out)
}

// writeNow is called by RawConn.Write. It writes until the socket is full.
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

// maxKeptBuffer is the capacity up to which an empty buffer is kept.
const maxKeptBuffer = 64 << 10

// writeDone is called after the whole buffer was written. It releases empty buffers that are
// large. The lock is held.
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
	_ = o.charge() // this only releases memory, so it cannot fail
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

// drain writes until nothing is queued. The caller of flush that woke the goroutine has set busy.
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
			// A deadline that passes would make the next non-blocking write fail.
			_ = o.conn.SetWriteDeadline(time.Time{})
			o.busy = false
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
	}
}
