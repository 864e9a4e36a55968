package agent

import (
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// rawReader reads one socket by raw system calls, and waits in the runtime's poller. Only one
// goroutine at a time may use it. Its callbacks are allocated once, so that the data path does not
// allocate memory.
type rawReader struct {
	rc syscall.RawConn

	pipe *pipe
	buf  []byte
	max  int
	n    int
	full bool
	err  error

	onSplice, onRead func(fd uintptr) bool
}

func newRawReader(rc syscall.RawConn) *rawReader {
	r := &rawReader{rc: rc}
	r.onSplice, r.onRead = r.trySplice, r.tryRead
	return r
}

// splice waits until bytes have moved from the socket into p, at most max. At the end of the stream
// it returns 0 bytes and no error. full reports whether p has no room although the socket has
// bytes.
func (r *rawReader) splice(p *pipe, max int) (n int, full bool, err error) {
	r.pipe, r.max, r.n, r.full, r.err = p, max, 0, false, nil
	if err := r.rc.Read(r.onSplice); err != nil {
		return 0, false, err
	}
	return r.n, r.full, r.err
}

func (r *rawReader) trySplice(fd uintptr) bool {
	r.n, r.err = r.pipe.fill(int(fd), r.max)
	if r.n > 0 || (r.err != nil && r.err != unix.EAGAIN) {
		return true
	}
	// If no bytes moved although the socket has some, either the pipe has no room, or the bytes
	// have just arrived, or splice has stopped at urgent data.
	if queued(int(fd)) == 0 {
		return r.err != unix.EAGAIN
	}
	if r.pipe.held.Load() > 0 {
		r.full, r.err = true, nil
		return true
	}
	if r.n, r.err = r.pipe.fill(int(fd), r.max); r.n == 0 && (r.err == nil || r.err == unix.EAGAIN) {
		r.n, r.err = r.pipe.copyFrom(int(fd), r.max)
	}
	return r.err != unix.EAGAIN
}

// read waits until it has read some bytes into b. It returns 0 bytes and no error at the
// end of the stream.
func (r *rawReader) read(b []byte) (int, error) {
	r.buf, r.n, r.err = b, 0, nil
	if err := r.rc.Read(r.onRead); err != nil {
		return 0, err
	}
	return r.n, r.err
}

func (r *rawReader) tryRead(fd uintptr) bool {
	r.n, r.err = receive(int(fd), r.buf)
	return r.err != unix.EAGAIN
}

// readFull reads until b is full.
func (r *rawReader) readFull(b []byte) error {
	for done := 0; done < len(b); {
		n, err := r.read(b[done:])
		if err != nil {
			return err
		}
		if n == 0 {
			if done > 0 {
				return io.ErrUnexpectedEOF
			}
			return io.EOF
		}
		done += n
	}
	return nil
}

// rawWriter writes one socket in the way that rawReader reads one.
type rawWriter struct {
	rc syscall.RawConn

	pipe    *pipe
	buf     []byte
	left    int
	n       int
	flags   int
	err     error
	blocked func() // called before waiting

	onSplice, onWrite, onPoll, onSpliceSome, onWriteSome func(fd uintptr) bool
	onTryWrite, onTrySplice                              func(fd uintptr)
}

func newRawWriter(rc syscall.RawConn) *rawWriter {
	w := &rawWriter{rc: rc}
	w.onSplice, w.onWrite, w.onPoll = w.stepSplice, w.stepWrite, w.stepPoll
	w.onTryWrite = func(fd uintptr) { w.n, w.err = send(int(fd), w.buf, w.flags) }
	w.onTrySplice = func(fd uintptr) { w.n, w.err = w.pipe.drain(int(fd), w.left) }
	w.onWriteSome = func(fd uintptr) bool { w.onTryWrite(fd); return w.err != unix.EAGAIN }
	w.onSpliceSome = func(fd uintptr) bool { w.onTrySplice(fd); return w.err != unix.EAGAIN }
	return w
}

// splice moves n bytes from p into the socket, and waits as needed. Before the first wait it calls
// blocked, if that is not nil.
func (w *rawWriter) splice(p *pipe, n int, blocked func()) error {
	w.pipe, w.left, w.err, w.blocked = p, n, nil, blocked
	if err := w.rc.Write(w.onSplice); err != nil {
		return err
	}
	return w.err
}

func (w *rawWriter) stepSplice(fd uintptr) bool {
	for w.left > 0 {
		n, err := w.pipe.drain(int(fd), w.left)
		if err == unix.EAGAIN {
			return w.wait()
		}
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			w.err = err
			return true
		}
		w.left -= n
	}
	return true
}

// wait calls blocked before the first wait, and returns false, which makes the poller wait.
func (w *rawWriter) wait() bool {
	if w.blocked != nil {
		w.blocked()
		w.blocked = nil
	}
	return false
}

// trySplice moves as many bytes from p as the socket accepts now, at most n. It returns unix.EAGAIN
// if the socket accepts none.
func (w *rawWriter) trySplice(p *pipe, n int) (int, error) {
	w.pipe, w.left, w.n, w.err = p, n, 0, nil
	if err := w.rc.Control(w.onTrySplice); err != nil {
		return 0, err
	}
	return w.n, w.err
}

// write writes all of b, and waits as needed. Before the first wait it calls blocked, if that is
// not nil.
func (w *rawWriter) write(b []byte, flags int, blocked func()) error {
	w.buf, w.flags, w.err, w.blocked = b, flags, nil, blocked
	if err := w.rc.Write(w.onWrite); err != nil {
		return err
	}
	return w.err
}

func (w *rawWriter) stepWrite(fd uintptr) bool {
	for len(w.buf) > 0 {
		n, err := send(int(fd), w.buf, w.flags)
		if err == unix.EAGAIN {
			return w.wait()
		}
		if err != nil {
			w.err = err
			return true
		}
		w.buf = w.buf[n:]
	}
	return true
}

// tryWrite writes as much of b as the socket accepts now. It returns unix.EAGAIN if the socket
// accepts nothing.
func (w *rawWriter) tryWrite(b []byte) (int, error) {
	w.buf, w.flags, w.n, w.err = b, 0, 0, nil
	if err := w.rc.Control(w.onTryWrite); err != nil {
		return 0, err
	}
	return w.n, w.err
}

// spliceSome is like trySplice, but waits until the socket accepts something.
func (w *rawWriter) spliceSome(p *pipe, n int) (int, error) {
	w.pipe, w.left, w.n, w.err = p, n, 0, nil
	if err := w.rc.Write(w.onSpliceSome); err != nil {
		return 0, err
	}
	return w.n, w.err
}

// writeSome is like tryWrite, but waits until the socket accepts something.
func (w *rawWriter) writeSome(b []byte) (int, error) {
	w.buf, w.flags, w.n, w.err = b, 0, 0, nil
	if err := w.rc.Write(w.onWriteSome); err != nil {
		return 0, err
	}
	return w.n, w.err
}

// waitWritable waits until the socket has few unsent bytes. Before the first wait it calls blocked,
// if that is not nil.
func (w *rawWriter) waitWritable(blocked func()) error {
	w.err, w.blocked = nil, blocked
	if err := w.rc.Write(w.onPoll); err != nil {
		return err
	}
	return w.err
}

func (w *rawWriter) stepPoll(fd uintptr) bool {
	ok, err := writable(int(fd))
	if !ok && err == nil {
		return w.wait()
	}
	w.err = err
	return true
}
