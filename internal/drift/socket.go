package drift

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Notification is a kind of notifications of the kernel by netlink.
type Notification struct {
	protocol int
	group    uint32
}

// These are the kinds of notifications that keepers use.
var (
	Links          = Notification{unix.NETLINK_ROUTE, unix.RTNLGRP_LINK}
	Neighbours     = Notification{unix.NETLINK_ROUTE, unix.RTNLGRP_NEIGH}
	TrafficControl = Notification{unix.NETLINK_ROUTE, unix.RTNLGRP_TC}
	Addresses      = Notification{unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_IFADDR}
	Addresses6     = Notification{unix.NETLINK_ROUTE, unix.RTNLGRP_IPV6_IFADDR}
	Routes         = Notification{unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_ROUTE}
	Rules          = Notification{unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_RULE}
	Rules6         = Notification{unix.NETLINK_ROUTE, unix.RTNLGRP_IPV6_RULE}
	NFTables       = Notification{unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES}
)

// socket receives the notifications of some groups.
type socket struct {
	file *os.File
	raw  syscall.RawConn
}

// receiveBuffer is the size of a socket's buffer in bytes. It bounds the notifications that are read
// before a comparison.
const receiveBuffer = 1 << 16

// subscribe opens a socket for groups of a protocol of netlink.
func subscribe(protocol int, groups []uint32) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("notifications of the kernel: %w", err)
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer), unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
	for _, g := range groups {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(g))
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("notifications of the kernel: %w", err)
	}
	s := &socket{file: os.NewFile(uintptr(fd), "netlink")}
	if s.raw, err = s.file.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("notifications of the kernel: %w", err), s.file.Close())
	}
	return s, nil
}

// Close ends the subscription, and a pending call of await.
func (s *socket) Close() error { return s.file.Close() }

// await waits until a notification has come in, or has been lost.
func (s *socket) await() error {
	return s.raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
}

// drain discards the notifications that have come in.
func (s *socket) drain() (err error) {
	closed := s.raw.Read(func(fd uintptr) bool { err = drain(int(fd)); return true })
	return errors.Join(err, closed)
}

// drain reads the notifications that a socket holds. Each is cut to one byte.
func drain(fd int) error {
	const most = 1 << 16 // more than the buffer holds, unless notifications come in faster than they are read
	var b [1]byte
	for range most {
		_, _, err := unix.Recvfrom(fd, b[:], 0)
		switch {
		case err == nil, errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return nil
		default:
			return err
		}
	}
	return nil
}
