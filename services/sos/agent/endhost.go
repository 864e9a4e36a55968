package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endHost is the agent's connection to the client or to the server.
type endHost struct {
	conn *net.TCPConn
	rc   syscall.RawConn
	shut atomic.Bool // whether the agent has sent its FIN
}

func newEndHost(c *net.TCPConn, a *Agent) (*endHost, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	e := &endHost{conn: c, rc: rc}
	return e, e.on(func(fd int) error {
		if err := setEndOptions(fd, a.cfg.KeepAliveIdle, a.cfg.KeepAliveInterval, a.cfg.KeepAliveCount); err != nil {
			return err
		}
		// An end host is usually near. If it is not, the system's default is as good as any other
		// choice.
		stats, err := tcpStats(fd)
		if err != nil || (stats.MinRTT > 0 && stats.MinRTT < localRTT) {
			return err
		}
		return setCongestion(fd, a.congestion.system)
	})
}

func (e *endHost) on(f func(fd int) error) error { return onRaw(e.rc, f) }

// closeWrite sends a FIN to the end host, to pass on the other end's FIN.
func (e *endHost) closeWrite() {
	e.shut.Store(true)
	_ = e.conn.CloseWrite() // an error is ignored, because the reading side sees it as well
}

// abort closes the connection with a RST.
func (e *endHost) abort() { resetNow(e.conn) }

// complete is called when both directions have ended. From then on the connection ends in order
// even if the process dies, and the kernel still sends the unsent bytes.
func (e *endHost) complete() {
	_ = e.on(func(fd int) error { return setLinger(fd, false) })
}

// close leaves a complete connection to the kernel, which sends the remaining bytes.
func (e *endHost) close() { _ = e.conn.Close() }

// acknowledged reports whether the end host of a complete connection has acknowledged everything,
// including the FIN, or the connection no longer exists.
func (e *endHost) acknowledged() bool { return e.gone() || e.unacked() == 0 }

// tcpClosed is the kernel's number for the state of a socket without a connection.
const tcpClosed = 7

// gone reports whether the socket has no connection any more, because the connection was reset or
// timed out, or because the FINs of both sides have been acknowledged.
func (e *endHost) gone() bool {
	gone := false
	_ = e.on(func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		gone = err == nil && info.State == tcpClosed
		return err
	})
	return gone
}

// dead reports whether the connection was reset or timed out, without consuming the error that the
// next read or write returns. A socket looks the same after the FINs of both sides, so dead returns
// false once this side has sent its FIN.
func (e *endHost) dead() bool {
	return e.gone() && !e.shut.Load() // checked in this order, because the FIN may be sent at any moment
}

// unacked returns the number of bytes that the end host has not acknowledged; 0 for a closed
// socket.
func (e *endHost) unacked() int { return unackedOf(e.on) }

// unackedOf returns the number of bytes that the other end of a socket has not acknowledged; 0 for
// a closed socket. It makes its system call through on.
func unackedOf(on func(func(fd int) error) error) int {
	n := 0
	_ = on(func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		return err
	})
	return n
}

// listenFor opens a port for one client; port 0 means any free port. A short queue is enough,
// because only one connection is ever accepted.
func listenFor(ctx context.Context, at netip.AddrPort, congestion string) (*net.TCPListener, error) {
	lc := net.ListenConfig{KeepAlive: -1, Control: controlFunc(func(fd int) error { return prepareEndSocket(fd, congestion) })}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("listen for the client: %w", err)
	}
	t := ln.(*net.TCPListener)
	rc, err := t.SyscallConn()
	if err == nil {
		err = rc.Control(func(fd uintptr) { _ = unix.Listen(int(fd), 8) })
	}
	if err != nil {
		_ = t.Close()
		return nil, err
	}
	return t, nil
}

// prepareEndSocket prepares a socket for an end host's connection. If the socket listens, accepted
// connections inherit the options. The linger time must be set here. If it were set only after
// accepting, a process that dies before that would end the connection with a FIN instead of an RST.
func prepareEndSocket(fd int, congestion string) error {
	if err := setLinger(fd, true); err != nil {
		return err
	}
	return setCongestion(fd, congestion)
}

// dropIncoming makes a listener ignore all packets without releasing its port. If the port were
// closed while the switches still forward the client's packets to it, it would refuse a new
// connection of the client from the same port. With the filter, the first packet of that connection
// is lost, and reaches the server when the client repeats it.
func dropIncoming(ln *net.TCPListener) {
	dropAll := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	rc, err := ln.SyscallConn()
	if err == nil {
		err = onRaw(rc, func(fd int) error {
			f := unix.SockFprog{Len: uint16(len(dropAll)), Filter: &dropAll[0]}
			if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &f); err != nil {
				return err
			}
			return ln.SetDeadline(time.Unix(1, 0))
		})
	}
	if err != nil {
		_ = ln.Close()
	}
}

// reservation is a bound port from which a connection will be made later.
type reservation struct {
	file *os.File
	port uint16
}

// reserve binds a port; port 0 means any free port. The last connection of the port may still be in
// TIME_WAIT, for a minute if the client closes first. A new connection to the same server is
// distinguished from it by timestamps (RFC 6191). Without timestamps, the dial fails
// with EADDRNOTAVAIL. If ports in TIME_WAIT were left out, an agent would have enough ports for no
// more than 375 connections a second.
func reserve(at netip.AddrPort, congestion string) (*reservation, error) {
	family := unix.AF_INET
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return nil, fmt.Errorf("socket towards the server: %w", err)
	}
	err = prepareEndSocket(fd, congestion)
	if err == nil && at.Port() != 0 {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("socket towards the server: %w", err)
	}
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind %v towards the server: %w", at, err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	r := &reservation{}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		r.port = uint16(a.Port)
	case *unix.SockaddrInet6:
		r.port = uint16(a.Port)
	}
	r.file = os.NewFile(uintptr(fd), "reserved port")
	return r, nil
}

func (r *reservation) close() { _ = r.file.Close() }

// dial connects from the reserved port, and uses up the reservation. The error wraps ECONNREFUSED,
// ETIMEDOUT, EHOSTUNREACH, ENETUNREACH or the context's error.
func (r *reservation) dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	defer r.close()
	rc, err := r.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	if err := onRaw(rc, func(fd int) error { return unix.Connect(fd, sockaddr(to)) }); err != nil && err != unix.EINPROGRESS {
		return nil, err
	}
	stop := context.AfterFunc(ctx, r.close)
	defer stop()
	if err := waitConnected(rc); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	c, err := net.FileConn(r.file)
	if err != nil {
		return nil, err
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		_ = c.Close()
		return nil, errors.New("not a TCP connection")
	}
	return t, nil
}

// waitConnected waits for the result of a connect in progress.
func waitConnected(rc syscall.RawConn) error {
	var result error
	err := rc.Write(func(fd uintptr) bool {
		fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds[:], 0)
		if err == unix.EINTR || (err == nil && n == 0) {
			return false
		}
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			result = err
		} else if code != 0 {
			result = unix.Errno(code)
		}
		return true
	})
	if err != nil {
		return err
	}
	return result
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
