package egress

import (
	"net"

	"golang.org/x/sys/unix"
)

// burstBytes is the socket's room for what comes at once: a group of pictures.
const burstBytes = 4 << 20

// roomy gives a socket room for a burst, beyond the kernel's limit if the process may do that.
func roomy(c *net.UDPConn) {
	_ = c.SetReadBuffer(burstBytes) // as much as there may be
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, burstBytes)
	})
}
