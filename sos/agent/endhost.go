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

// endHost is the connection to the client or to the server.
type endHost struct {
	conn *net.TCPConn
	rc   syscall.RawConn
	shut atomic.Bool // our direction was ended by FIN
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
		// An end host is near, or else the system's own choice is as good as any.
		stats, err := linkStats(fd)
		if err != nil || (stats.MinRTT > 0 && stats.MinRTT < light) {
			return err
		}
		return setCongestion(fd, a.congestion.system)
	})
}

func (e *endHost) on(f func(fd int) error) error { return onRaw(e.rc, f) }

// closeWrite passes the other end's FIN on.
func (e *endHost) closeWrite() {
	e.shut.Store(true)
	_ = e.conn.CloseWrite() // an error shows on the reading side as well
}

// abort sends RST.
func (e *endHost) abort() { resetNow(e.conn) }

// complete is called when both directions have ended: from here on the connection
// ends well even if the process dies. What is still to be sent is sent.
func (e *endHost) complete() {
	_ = e.on(func(fd int) error { return setLinger(fd, false) })
}

// close gives a complete connection to the kernel.
func (e *endHost) close() { _ = e.conn.Close() }

// acknowledged reports whether the end host has everything of a complete
// connection, our FIN included, or is gone.
func (e *endHost) acknowledged() bool { return e.gone() || e.unacked() == 0 }

// tcpClosed is the state of a socket whose connection is gone.
const tcpClosed = 7

// gone reports whether the socket has no connection any more: it was reset, timed
// out, or both sides' FIN have been acknowledged.
func (e *endHost) gone() bool {
	gone := false
	_ = e.on(func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		gone = err == nil && info.State == tcpClosed
		return err
	})
	return gone
}

// dead reports whether the connection was reset or timed out, without taking
// the error from whoever reads or writes next. After both sides' FIN a socket
// looks the same, so only the time before our own FIN tells.
func (e *endHost) dead() bool {
	return e.gone() && !e.shut.Load() // in this order: our FIN may go out at any moment
}

// unacked returns how many bytes the end host has not acknowledged, 0 for a closed socket.
func (e *endHost) unacked() int { return unackedOf(e.on) }

// unackedOf returns how many bytes the other end of a socket has not acknowledged, 0 for a
// closed one; on runs a function on the socket.
func unackedOf(on func(func(fd int) error) error) int {
	n := 0
	_ = on(func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		return err
	})
	return n
}

// listenFor opens a port for one client, any that is free if it is 0. The short
// queue is enough, because one connection is all that is ever accepted.
func listenFor(ctx context.Context, at netip.AddrPort, congestion string) (*net.TCPListener, error) {
	lc := net.ListenConfig{KeepAlive: -1, Control: beforeUse(func(fd int) error { return beforeEnd(fd, congestion) })}
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

// beforeEnd prepares a socket that an end host will be connected to, by itself or, if
// it listens, by what it accepts. Were the death of the process an RST only once the
// connection has been taken in, one that dies before would end it like a FIN.
func beforeEnd(fd int, congestion string) error {
	if err := setLinger(fd, true); err != nil {
		return err
	}
	return setCongestion(fd, congestion)
}

// deafen makes a listener take no notice of anybody, without giving its port
// back. While the switches still lead the client here, a closed port would
// refuse a new connection of the client's that uses the same port again; so its
// first packet is lost, and finds its way when it is sent again.
func deafen(ln *net.TCPListener) {
	nobody := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	rc, err := ln.SyscallConn()
	if err == nil {
		err = onRaw(rc, func(fd int) error {
			f := unix.SockFprog{Len: uint16(len(nobody)), Filter: &nobody[0]}
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

// reservation is a port that is bound, for a dial later.
type reservation struct {
	file *os.File
	port uint16
}

// reserve binds a port, any that is free if it is 0. Its last connection may still be in
// TIME_WAIT, for a minute where the client closes first: a new one to the same server is told
// from that by its timestamps (RFC 6191), and the dial of one without them fails with
// EADDRNOTAVAIL. Were such ports left out, an agent would carry no more than the 375 connections
// a second for which its ports last.
func reserve(at netip.AddrPort, congestion string) (*reservation, error) {
	family := unix.AF_INET
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return nil, fmt.Errorf("socket towards the server: %w", err)
	}
	err = beforeEnd(fd, congestion)
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

// dial connects from the reserved port; the reservation is used up. The error
// wraps ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH or the context's.
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
