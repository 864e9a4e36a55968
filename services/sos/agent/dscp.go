package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// checkMarks returns an error if a mark is not a DSCP.
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

// marker sets the DSCPs of packets that the agent sends for a session.
type marker struct {
	s     *session
	mu    sync.Mutex // held while the DSCPs of sockets are set; the session's lock may be taken under it
	marks agentapi.Marks
}

// set changes the DSCPs of all packets that the agent sends for the session.
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

// current returns the DSCPs of packets that the agent sends for the session.
func (k *marker) current() agentapi.Marks {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.marks
}

// mark sets the session's DSCP on a connection to the peer. attach calls it although tune has
// called it before, because the DSCP may have changed in between.
func (k *marker) mark(nc net.Conn) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.s.transport().Mark(nc, k.marks.Peer)
}

// markEnds locks mu and calls markEnd.
func (k *marker) markEnds() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.markEnd()
}

// markEnd sets the DSCP of packets to the end host. If the end host's socket does not exist yet,
// markEnd sets it on the socket from which that one will be made, so that even the first segment
// has the DSCP. mu is held.
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
