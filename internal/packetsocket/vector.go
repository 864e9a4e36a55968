package packetsocket

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// vector holds the arguments of a system call that handles several frames (sendmmsg, recvmmsg).
type vector struct {
	messages []message
	parts    []unix.Iovec
}

// message is the kernel's struct mmsghdr.
type message struct {
	header unix.Msghdr
	size   uint32
}

// newVector returns the arguments for up to n frames.
func newVector(n int) vector {
	v := vector{messages: make([]message, n), parts: make([]unix.Iovec, n)}
	for i := range v.messages {
		v.messages[i].header.Iov = &v.parts[i]
		v.messages[i].header.SetIovlen(1)
	}
	return v
}

// set makes b the memory from which frame i is sent, or to which it is received.
func (v *vector) set(i int, b []byte) {
	v.parts[i].Base = unsafe.SliceData(b)
	v.parts[i].SetLen(len(b))
}

// call makes a system call for the first n frames, and returns the number of frames that it has
// handled. The call never blocks, so the runtime need not prepare another thread meanwhile.
func (v *vector) call(number, fd uintptr, n int) (int, error) {
	for {
		done, _, err := unix.RawSyscall6(number, fd, uintptr(unsafe.Pointer(&v.messages[0])), uintptr(n), 0, 0, 0)
		switch err {
		case 0:
			return int(done), nil
		case unix.EINTR:
		default:
			return 0, err
		}
	}
}
