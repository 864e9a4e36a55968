package egress

import (
	"net"

	"golang.org/x/sys/unix"
)

// burstBytes is the size of a socket's receive buffer in bytes. A group of pictures that arrives at
// once has to fit.
const burstBytes = 4 << 20

// enlargeReceiveBuffer sets the socket's receive buffer to burstBytes. The size is limited by the
// kernel's net.core.rmem_max unless the process has CAP_NET_ADMIN.
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
