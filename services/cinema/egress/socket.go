package egress

import (
	"net"

	"golang.org/x/sys/unix"
)

// burstBytes is the size of a socket's receive buffer: a group of pictures that arrives at
// once.
const burstBytes = 4 << 20

// enlargeReceiveBuffer makes room for a burst, beyond the kernel's limit if the process has the
// permission.
func enlargeReceiveBuffer(c *net.UDPConn) {
	_ = c.SetReadBuffer(burstBytes) // up to the kernel's limit
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, burstBytes)
	})
}
