package agent

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// These are the system calls of the data path. None of them blocks, so they are made
// without informing Go's scheduler. Otherwise an agent that wakes up a thousand times a
// second would wake the runtime's monitor as often, which costs as much as the work itself.

// splice moves up to n bytes between descriptors. It returns unix.EAGAIN if nothing can
// move now.
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

// tee copies n bytes from one pipe to another without consuming them.
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

// receive calls recv(2) without blocking; b must not be empty.
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

// send calls send(2) without blocking and without raising SIGPIPE; b must not be empty.
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

// writable reports whether poll(2) finds the socket writable. If it does not, the kernel
// reports when it is, which it would not do after an ioctl.
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

// queued returns how many bytes wait in the socket; 0 if the kernel cannot tell.
func queued(fd int) int {
	var n int32
	if _, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCINQ, uintptr(unsafe.Pointer(&n))); e != 0 {
		return 0
	}
	return int(n)
}
