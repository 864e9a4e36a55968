package agent

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// spliceFlags makes the kernel move pages where it can. The calls never block, because the agent
// waits in the runtime's poller.
const spliceFlags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK

// pipe is a kernel pipe that holds payload on its path through the agent. One goroutine may
// fill it while another empties it.
type pipe struct {
	r, w int
	held atomic.Int64 // bytes in it
}

// errSmallPipe means that a pipe has too little room for the content of another pipe.
var errSmallPipe = errors.New("pipe has too little room")

// close closes both descriptors of the pipe.
func (p *pipe) close() {
	_ = unix.Close(p.r)
	_ = unix.Close(p.w)
}

// fill moves up to n bytes from fd into the pipe.
func (p *pipe) fill(fd, n int) (int, error) {
	m, err := splice(fd, p.w, n)
	if m > 0 {
		p.held.Add(int64(m))
	}
	return m, err
}

// copyFrom copies a few bytes from fd into the pipe. It is used at urgent data, at which splice
// stops.
func (p *pipe) copyFrom(fd, n int) (int, error) {
	var b [512]byte
	m, err := receive(fd, b[:min(n, len(b))])
	if err != nil || m == 0 {
		return 0, err
	}
	for done := 0; done < m; {
		k, err := unix.Write(p.w, b[done:m])
		if err != nil && err != unix.EINTR {
			return 0, fmt.Errorf("write to a pipe: %w", err)
		}
		done += max(0, k)
	}
	p.held.Add(int64(m))
	return m, nil
}

// drain moves up to n bytes from the pipe to fd.
func (p *pipe) drain(fd, n int) (int, error) {
	m, err := splice(p.r, fd, n)
	if m > 0 {
		p.held.Add(int64(-m))
	}
	return m, err
}

// copyTo makes the empty pipe q hold the same n bytes as p; the kernel shares the pages.
func (p *pipe) copyTo(q *pipe, n int) error {
	m, err := tee(p.r, q.w, n)
	if err != nil {
		return fmt.Errorf("tee of %d bytes: %w", n, err)
	}
	q.held.Add(int64(m))
	if m != n {
		return errSmallPipe
	}
	return nil
}

// load moves the pipe's n bytes into memory.
func (p *pipe) load(n int) ([]byte, error) {
	b := make([]byte, n)
	for done := 0; done < n; {
		m, err := unix.Read(p.r, b[done:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, fmt.Errorf("read from a pipe: %w", err)
		case m == 0:
			return nil, errors.New("read from a pipe: it is empty")
		}
		p.held.Add(int64(-m))
		done += m
	}
	return b, nil
}

// pipePool keeps empty pipes for reuse, because a new pipe costs three system calls and the
// allocation of its ring.
type pipePool struct {
	size int // desired capacity in bytes
	keep int // maximum number of idle pipes
	null int // /dev/null, to empty pipes without reading them

	mu     sync.Mutex
	idle   []*pipe
	closed bool
	inUse  atomic.Int64
}

// newPipePool returns an empty pool of pipes of the given size.
func newPipePool(size, keep int) (*pipePool, error) {
	null, err := unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/null: %w", err)
	}
	return &pipePool{size: size, keep: keep, null: null}, nil
}

// get returns an empty pipe.
func (pp *pipePool) get() (*pipe, error) {
	pp.mu.Lock()
	if n := len(pp.idle); n > 0 {
		p := pp.idle[n-1]
		pp.idle = pp.idle[:n-1]
		pp.mu.Unlock()
		pp.inUse.Add(1)
		return p, nil
	}
	pp.mu.Unlock()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	p := &pipe{r: fds[0], w: fds[1]}
	pp.grow(p)
	pp.inUse.Add(1)
	return p, nil
}

// grow raises the pipe's capacity as far as the kernel allows. A small pipe works too, only
// with more system calls.
func (pp *pipePool) grow(p *pipe) {
	for size := pp.size; size > 64<<10; size /= 2 {
		if _, err := unix.FcntlInt(uintptr(p.w), unix.F_SETPIPE_SZ, size); err == nil {
			return
		}
	}
}

// put empties a pipe and returns it to the pool.
func (pp *pipePool) put(p *pipe) {
	pp.inUse.Add(-1)
	for n := p.held.Load(); n > 0; n = p.held.Load() {
		if err := pp.discard(p, int(n)); err != nil {
			p.close()
			return
		}
	}
	pp.mu.Lock()
	defer pp.mu.Unlock()
	if pp.closed || len(pp.idle) >= pp.keep {
		p.close()
		return
	}
	pp.idle = append(pp.idle, p)
}

// discard drops n bytes from the front of p.
func (pp *pipePool) discard(p *pipe, n int) error {
	for n > 0 {
		m, err := p.drain(pp.null, n)
		if err != nil {
			return fmt.Errorf("discard %d bytes: %w", n, err)
		}
		if m == 0 {
			return errors.New("discard: pipe is empty")
		}
		n -= m
	}
	return nil
}

// close closes the idle pipes. Pipes in use are closed when they are put back.
func (pp *pipePool) close() {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	for _, p := range pp.idle {
		p.close()
	}
	pp.idle, pp.closed = nil, true
	_ = unix.Close(pp.null)
	pp.null = -1
}
