package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/service/control"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// setDSCP has what a socket sends bear a DSCP.
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

// checkMarks refuses what is no DSCP.
func checkMarks(m agentapi.Marks) error {
	for _, x := range []struct {
		field string
		dscp  uint8
	}{{"marks.peer", m.Peer}, {"marks.end", m.End}} {
		if x.dscp > 63 {
			return control.BadRequest(x.field, "%d: want a DSCP, 0 to 63", x.dscp)
		}
	}
	return nil
}

// marker has what a session sends bear its DSCPs.
type marker struct {
	s     *session
	mu    sync.Mutex // held while sockets are given their DSCP; the session's may be locked under it
	marks agentapi.Marks
}

// set gives all that the session sends other DSCPs.
func (k *marker) set(m agentapi.Marks) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.marks = m
	for _, c := range *k.s.conns.Load() {
		err := k.s.transport().Mark(c.net, m.Peer)
		if err != nil && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("connection to agent %v: %w", k.s.req.Peer.Addr, err)
		}
	}
	return k.markEnd()
}

// now are the DSCPs of what the session sends.
func (k *marker) now() agentapi.Marks {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.marks
}

// unmark takes the session's DSCP off a connection that others will have.
func (k *marker) unmark(nc net.Conn) {
	if err := k.s.transport().Mark(nc, 0); err != nil && !errors.Is(err, net.ErrClosed) {
		k.s.agent.log.Debug("DSCP of a connection that is given back", "session", k.s.req.ID, "error", err)
	}
}

// mark gives a connection to the peer the session's DSCP. Whoever has made it one of the
// session's does so again: the DSCP may be another since it was tuned.
func (k *marker) mark(nc net.Conn) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.s.transport().Mark(nc, k.marks.Peer)
}

// markEnds is markEnd for who does not hold mu.
func (k *marker) markEnds() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.markEnd()
}

// markEnd gives what the end host is sent its DSCP: from the very first segment, if its
// socket does not exist yet, by what that comes from. mu is held.
func (k *marker) markEnd() error {
	s := k.s
	s.mu.Lock()
	end, reserved, listener := s.end, s.reserved, s.listener
	s.mu.Unlock()
	var socket syscall.Conn
	switch {
	case end != nil:
		socket = end.conn
	case reserved != nil:
		socket = reserved.file
	case listener != nil:
		socket = listener
	default:
		return nil
	}
	rc, err := socket.SyscallConn()
	if err == nil {
		err = onRaw(rc, func(fd int) error { return setDSCP(fd, k.marks.End) })
	}
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("towards the end host: %w", err)
	}
	return nil
}
