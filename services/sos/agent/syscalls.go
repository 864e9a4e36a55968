package agent

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These functions make the system calls of the data path. None of the calls blocks, so they are
// made without informing Go's scheduler. Otherwise an agent that wakes up a thousand times a second
// would wake the runtime's monitor as often, which costs as much as the work itself.

// splice moves up to n bytes between descriptors. It returns unix.EAGAIN if no byte can be moved
// now.
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

// writable reports whether poll(2) finds the socket writable. If poll does not, the kernel later
// notifies the poller when it is; after an ioctl it would not.
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

// queued returns the number of bytes that wait to be read from the socket; 0 if the kernel cannot
// tell.
func queued(fd int) int {
	var n int32
	if _, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCINQ, uintptr(unsafe.Pointer(&n))); e != 0 {
		return 0
	}
	return int(n)
}

// setBuffers sets a socket's buffers to size bytes in each direction, beyond the kernel's limits.
// If force is false, the process lacks the privilege for that. setBuffers then leaves the buffers
// to the kernel's own tuning, which reaches further than net.core.rmem_max would permit.
func setBuffers(fd, size int, force bool) error {
	if !force {
		return nil
	}
	return setInts(fd, []intOption{
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size},
	})
}

// mayForceBuffers reports whether this process may exceed the limits net.core.rmem_max and
// wmem_max. That requires CAP_NET_ADMIN.
func mayForceBuffers() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<20) == nil
}

// setCongestion sets a socket's congestion control. An empty name leaves it unchanged.
func setCongestion(fd int, name string) error {
	if name == "" {
		return nil
	}
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name); err != nil {
		return fmt.Errorf("congestion control %q: %w", name, err)
	}
	return nil
}

// congestionControls returns the congestion controls that the kernel offers to this
// process.
func congestionControls() []string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		return nil
	}
	names := strings.Fields(string(b))
	slices.Sort(names)
	return names
}

// setDataOptions sets the socket options of a connection between agents.
func setDataOptions(fd, lowat int) error {
	return setInts(fd, []intOption{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, lowat},
		// Idle connections in the pool have no heartbeats, which only sessions send.
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 5},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 2},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
	})
}

// setEndOptions sets the socket options of a connection to an end host. Until the session ends in
// order, the socket's linger time is zero. If this process is killed, the kernel therefore sends
// RST, and the end host does not take the loss for a regular end.
func setEndOptions(fd int, keepIdle, keepInterval time.Duration, keepCount int) error {
	if err := setLinger(fd, true); err != nil {
		return err
	}
	return setInts(fd, []intOption{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_OOBINLINE, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(keepIdle)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(keepInterval)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepCount},
	})
}

type intOption struct{ level, name, value int }

func setInts(fd int, options []intOption) error {
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("socket option %d/%d = %d: %w", o.level, o.name, o.value, err)
		}
	}
	return nil
}

// setLinger makes closing a socket send RST if reset is set, and otherwise FIN.
func setLinger(fd int, reset bool) error {
	l := unix.Linger{}
	if reset {
		l.Onoff = 1
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &l); err != nil {
		return fmt.Errorf("linger: %w", err)
	}
	return nil
}

// seconds returns d in seconds, rounded up, because the kernel accepts whole seconds only and
// refuses 0.
func seconds(d time.Duration) int { return max(1, int((d+time.Second-1)/time.Second)) }

// tcpStats returns the figures of a TCP socket from TCP_INFO.
func tcpStats(fd int) (ConnStats, error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return ConnStats{}, fmt.Errorf("TCP_INFO: %w", err)
	}
	return ConnStats{
		RTT:         time.Duration(info.Rtt) * time.Microsecond,
		MinRTT:      time.Duration(info.Min_rtt) * time.Microsecond,
		Sent:        uint64(info.Segs_out),
		Retransmits: uint64(info.Total_retrans),
		Rate:        info.Delivery_rate,
		Delivered:   info.Delivered,
		DataSent:    info.Data_segs_out,
		BytesSent:   info.Bytes_sent,
		Unsent:      int(info.Notsent_bytes),
		Segment:     int(info.Snd_mss),
	}, nil
}

// resetNow closes c with a RST.
func resetNow(c net.Conn) {
	_ = onSocket(c, func(fd int) error { return setLinger(fd, true) })
	_ = c.Close()
}

// setDSCP sets the DSCP of packets that a socket sends.
func setDSCP(fd int, dscp uint8) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("address family of a socket: %w", err)
	}
	if domain == unix.AF_INET6 {
		return setInts(fd, []intOption{{unix.IPPROTO_IPV6, unix.IPV6_TCLASS, int(dscp) << 2}})
	}
	return setInts(fd, []intOption{{unix.IPPROTO_IP, unix.IP_TOS, int(dscp) << 2}})
}
