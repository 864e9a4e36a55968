package delayline

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// readBatch is the number of frames that are read from one TAP before due ones are written.
	readBatch = 64
	// A busy loop pauses between rounds so that frames gather, which bounds its wake-ups and so its
	// CPU time. The pause depends on the shortest delay of the loop's links. Frames are treated as
	// if they had arrived half a pause before they are read, and may be delivered half a pause
	// early, so that the pause does not change the delay on average.
	moderationShare = 50
	minModeration   = 40 * time.Microsecond
	maxModeration   = 400 * time.Microsecond
)

// pipe is a line between two TAPs.
type pipe struct {
	line     *line
	from, to *tap
	down     bool
}

// loop owns the I/O of some pipes on one OS thread. mu guards the pipes: the thread holds it while
// it works, and the control server holds it while it reads or changes them.
type loop struct {
	mu    sync.Mutex
	pipes []*pipe
	next  []int64 // when each pipe's front frame is due
	epoll int
	wake  int   // eventfd that is written when parameters have changed or the loop must end
	pause int64 // how long to pause after a busy round, in nanoseconds
}

func newLoop() (*loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	l := &loop{epoll: epoll, wake: wake}
	if err := l.watch(wake, -1); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *loop) watch(fd, index int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("epoll add: %w", err)
	}
	return nil
}

// add adds a pipe before the loop runs.
func (l *loop) add(p *pipe) error {
	l.pipes = append(l.pipes, p)
	l.next = append(l.next, math.MaxInt64)
	return l.watch(p.from.fd, len(l.pipes)-1)
}

func (l *loop) close() {
	_ = unix.Close(l.epoll)
	_ = unix.Close(l.wake)
}

// wakeUp wakes the loop, so that it looks at its state again.
func (l *loop) wakeUp() { _, _ = unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// run carries frames until ctx ends.
func (l *loop) run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	setRealTime()
	stop := context.AfterFunc(ctx, l.wakeUp)
	defer stop()

	events := make([]unix.EpollEvent, 64)
	l.mu.Lock()
	l.updatePause()
	l.mu.Unlock()
	for ctx.Err() == nil {
		n, err := waitUntil(l.epoll, events, l.nextDue())
		if err != nil {
			return err
		}
		busy, err := l.work(events[:n])
		if err != nil {
			return err
		}
		if busy {
			rawSleep(l.pause)
		}
	}
	return nil
}

// setRealTime makes the calling thread wake at the requested time: it gets real-time priority, so that
// a busy machine does not delay the line, and no timer slack. It ignores errors; late deliveries
// show in the statistics.
func setRealTime() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
}

// updatePause sets the pause according to the pipes' parameters.
func (l *loop) updatePause() {
	l.pause = int64(maxModeration)
	for _, p := range l.pipes {
		l.pause = min(l.pause, int64(p.line.params.Delay/moderationShare))
	}
	l.pause = max(l.pause, int64(minModeration))
}

func (l *loop) nextDue() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := int64(math.MaxInt64)
	for _, t := range l.next {
		due = min(due, t)
	}
	return due
}

// work reads from the ready TAPs and delivers the frames that are due.
func (l *loop) work(events []unix.EpollEvent) (busy bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := monotonic()
	for _, ev := range events {
		if ev.Fd < 0 {
			var buf [8]byte
			_, _ = unix.Read(l.wake, buf[:])
			continue
		}
		busy = true
		i := int(ev.Fd)
		if err := l.pipes[i].read(now - l.pause/2); err != nil {
			return false, err
		}
		l.next[i] = l.pipes[i].line.next()
	}
	for i, due := range l.next {
		if due > now+l.pause/2 {
			continue
		}
		l.pipes[i].deliver(monotonic(), l.pause/2)
		l.next[i] = l.pipes[i].line.next()
	}
	return busy, nil
}

// read reads up to a batch of frames and passes them to the line.
func (p *pipe) read(now int64) error {
	for range readBatch {
		space := p.line.fifo.space()[:maxRead]
		n, errno := rawRead(p.from.fd, space)
		switch {
		case errno == unix.EAGAIN:
			return nil
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return fmt.Errorf("read %s: %w: %w", p.from.name, errGone, errno)
		}
		if !p.down {
			p.line.accept(now, space[:n])
		}
	}
	return nil
}

// deliver writes the frames that are due now or within slack.
func (p *pipe) deliver(now, slack int64) {
	for p.line.next() <= now+slack {
		head, body := p.line.fifo.bytes(p.line.fifo.at(0))
		p.line.delivered(now, rawWrite(p.to.fd, head, body) == 0)
	}
}

// epoch is the origin of the loops' clock.
var epoch = time.Now()

// monotonic returns the time of the loops' clock in nanoseconds. It is read in the vDSO, whereas
// unix.ClockGettime would be a system call.
func monotonic() int64 { return int64(time.Since(epoch)) }

// waitUntil calls epoll_pwait2. It returns when there are events or the due time has come.
func waitUntil(epoll int, events []unix.EpollEvent, due int64) (int, error) {
	var timeout *unix.Timespec
	if due != math.MaxInt64 {
		ts := unix.NsecToTimespec(max(due-monotonic(), 0))
		timeout = &ts
	}
	call := unix.Syscall6
	if timeout != nil && timeout.Sec == 0 && timeout.Nsec <= int64(maxModeration) {
		call = unix.RawSyscall6
	}
	n, _, errno := call(unix.SYS_EPOLL_PWAIT2, uintptr(epoll),
		uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(unsafe.Pointer(timeout)), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, fmt.Errorf("epoll_pwait2 (Linux 5.11 or later): %w", errno)
}

// rawRead, rawWrite and rawSleep bypass the Go scheduler. This is safe because the descriptors
// never block, pauses are short, and the loop has the thread for itself.
func rawRead(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return int(n), errno
}

func rawWrite(fd int, head, body []byte) unix.Errno {
	if len(body) == 0 {
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&head[0])), uintptr(len(head)))
		return errno
	}
	iov := [2]unix.Iovec{
		{Base: &head[0], Len: uint64(len(head))},
		{Base: &body[0], Len: uint64(len(body))},
	}
	_, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&iov[0])), 2)
	return errno
}

func rawSleep(nanoseconds int64) {
	ts := unix.NsecToTimespec(nanoseconds)
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}
