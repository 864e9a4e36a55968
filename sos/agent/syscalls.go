package agent

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of the data path. None of them waits, so they are made
// without telling Go's scheduler: otherwise an agent that wakes up a thousand
// times a second would wake the runtime's monitor as often, which costs as much
// as the work itself.

// splice moves up to n bytes between descriptors. It returns unix.EAGAIN when
// nothing can move now.
func splice(from, to, n int) (int, error) {
	for {
		moved, _, e := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n), spliceFlags)
		switch e {
		case 0:
			return int(moved), nil
		case unix.EINTR:
			continue
		}
		return 0, e
	}
}

// tee makes the pipe to hold n bytes of the pipe from, without taking them.
func tee(from, to, n int) (int, error) {
	for {
		moved, _, e := unix.RawSyscall6(unix.SYS_TEE, uintptr(from), uintptr(to), uintptr(n), unix.SPLICE_F_NONBLOCK, 0, 0)
		switch e {
		case 0:
			return int(moved), nil
		case unix.EINTR:
			continue
		}
		return 0, e
	}
}

// receive is read(2) on a socket, for b that is not empty.
func receive(fd int, b []byte) (int, error) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return 0, e
	}
}

// send is send(2) that does not raise SIGPIPE, for b that is not empty.
func send(fd int, b []byte, flags int) (int, error) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
			uintptr(flags|unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL), 0, 0)
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return 0, e
	}
}

// writable asks poll(2) whether the socket can be written. If not, the kernel
// will report when it can, which an ioctl would not make it do.
func writable(fd int) (bool, error) {
	p := unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}
	var now unix.Timespec
	n, _, e := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	switch e {
	case 0:
		return n > 0, nil
	case unix.EINTR:
		return false, nil
	}
	return false, e
}

// queued is how many bytes wait in the socket; 0 if it cannot tell.
func queued(fd int) int {
	var n int32
	if _, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCINQ, uintptr(unsafe.Pointer(&n))); e != 0 {
		return 0
	}
	return int(n)
}
