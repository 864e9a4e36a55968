package agent

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// tlsHandshake is the first byte of a TLS connection.
const tlsHandshake = 0x16

// acceptor accepts the connections that peers make to the agent's data ports.
type acceptor struct {
	agent *Agent
	// unauthenticated and expected hold a token for each accepted connection that has not proved
	// yet that it holds a session's key. expected is for connections from the peer of a session,
	// and unauthenticated for all others.
	unauthenticated, expected chan struct{}

	mu             sync.Mutex // a leaf: nothing else is locked under it
	closed         bool
	sessionsByPeer map[netip.Addr]int // number of sessions by the peer that opens their connections
	accepted       map[net.Conn]struct{}
	idleByPeer     map[netip.Addr]int // number of connections that a peer keeps for later sessions
	idle           int                // sum of idleByPeer
}

func newAcceptor(a *Agent) *acceptor {
	return &acceptor{
		agent: a, unauthenticated: make(chan struct{}, a.cfg.MaxUnauthenticated),
		expected:       make(chan struct{}, max(a.cfg.MaxUnauthenticated, a.cfg.MaxSessions)),
		sessionsByPeer: make(map[netip.Addr]int), accepted: make(map[net.Conn]struct{}), idleByPeer: make(map[netip.Addr]int),
	}
}

// countPeer adds sessions, which may be negative, to the number of sessions that wait for
// connections from a peer.
func (x *acceptor) countPeer(peer netip.Addr, sessions int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sessionsByPeer[peer] += sessions; x.sessionsByPeer[peer] == 0 {
		delete(x.sessionsByPeer, peer)
	}
}

// startIdle counts a connection that a peer keeps for later sessions. It returns false if the peer,
// or all peers together, have as many as permitted. A peer need not keep to its own bound of them.
func (x *acceptor) startIdle(peer netip.Addr) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.idleByPeer[peer] >= x.agent.cfg.WarmPerPeer || x.idle >= x.agent.cfg.WarmTotal {
		return false
	}
	x.idleByPeer[peer]++
	x.idle++
	return true
}

// stopIdle ends what startIdle has begun.
func (x *acceptor) stopIdle(peer netip.Addr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.idle--
	if x.idleByPeer[peer]--; x.idleByPeer[peer] == 0 {
		delete(x.idleByPeer, peer)
	}
}

// close stops the acceptor and ends idle connections.
func (x *acceptor) close() {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.endIdle()
}

// endIdle ends the connections that peers keep idle, and those that have not proved a key. It
// leaves connections of sessions that have just ended a short time to send their last frame.
func (x *acceptor) endIdle() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for c := range x.accepted {
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	}
}

// track registers an accepted connection. If the agent is closing, it closes the connection
// and returns false.
func (x *acceptor) track(c net.Conn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		_ = c.Close()
		return false
	}
	x.accepted[c] = struct{}{}
	return true
}

func (x *acceptor) untrack(c net.Conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.accepted, c)
}

// run accepts connections on one data port until the listener closes.
func (x *acceptor) run(ln net.Listener) {
	a := x.agent
	retrying := listen.New(ln, func(err error) {
		a.warnLimit.Warn(a.log, "accept on data port", "address", ln.Addr(), "error", err)
	})
	defer context.AfterFunc(a.ctx, func() { _ = retrying.Close() })()
	for {
		nc, err := retrying.Accept()
		if err != nil {
			return
		}
		slots := x.slotsFor(nc)
		select {
		case slots <- struct{}{}:
			a.wg.Go(func() { x.serve(nc, slots) })
		default:
			a.metrics.rejected.Inc()
			resetNow(nc)
		}
	}
}

// slotsFor returns the tokens of the limit under which a new connection counts. Connections that
// have not proved a key must not lock out the peers of sessions, however many and silent they are.
func (x *acceptor) slotsFor(nc net.Conn) chan struct{} {
	from, err := netip.ParseAddrPort(nc.RemoteAddr().String())
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil && (x.sessionsByPeer[from.Addr().Unmap()] > 0 || x.agent.expected.has(from.Addr().Unmap(), time.Now())) {
		return x.expected
	}
	return x.unauthenticated
}

// serve serves one accepted connection, which may carry several sessions, one after the other. It
// holds one of the few slots until the first opening has been accepted.
func (x *acceptor) serve(nc net.Conn, slots <-chan struct{}) {
	holding := true
	authenticated := func() {
		if holding {
			holding = false
			<-slots
		}
	}
	defer authenticated()
	if !x.track(nc) {
		return
	}
	defer x.untrack(nc)
	c, err := x.unwrap(nc)
	var o opened
	for err == nil {
		if o, err = x.nextOpening(c, o.peer); err == nil {
			authenticated()
			if o.session != nil {
				err = o.session.serveConn(c, o.index, nil)
			}
		}
	}
	resetNow(nc)
}

// opened is the result of an opening on an accepted connection.
type opened struct {
	peer    netip.Addr
	session *session // nil if the peer has opened the connection before a session needs it
	index   int
}

// nextOpening reads the next opening of a connection. peer is the agent that has opened the
// connection before, or the zero Addr.
func (x *acceptor) nextOpening(c net.Conn, peer netip.Addr) (opened, error) {
	a := x.agent
	if !peer.IsValid() {
		o, err := x.readOpening(c, a.cfg.OpeningTimeout)
		if err != nil {
			a.metrics.rejected.Inc()
			a.log.Debug("data connection rejected", "from", c.RemoteAddr(), "error", err)
		}
		return o, err
	}
	if !x.startIdle(peer) {
		return opened{}, errTooManyIdle
	}
	defer x.stopIdle(peer)
	return x.readOpening(c, lastWarmFactor*a.cfg.WarmIdle+a.cfg.OpeningTimeout)
}

var errTooManyIdle = errors.New("the peer keeps too many idle connections")

// unwrap examines the first byte without consuming it, and starts TLS if that byte begins a TLS
// handshake.
func (x *acceptor) unwrap(nc net.Conn) (net.Conn, error) {
	a := x.agent
	deadline := time.Now().Add(a.cfg.OpeningTimeout)
	if err := nc.SetDeadline(deadline); err != nil {
		return nil, err
	}
	first, err := peek(nc)
	if err != nil || first != tlsHandshake {
		return nc, err
	}
	if a.dataTLS == nil {
		return nil, errors.New("TLS on a data connection, but the agent has no certificate")
	}
	tc := tls.Server(nc, a.dataTLS)
	if err := tc.Handshake(); err != nil {
		return nil, fmt.Errorf("TLS on a data connection: %w", err)
	}
	return tc, nil
}

// peek returns the first byte of a connection without consuming it.
func peek(nc net.Conn) (byte, error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return 0, nil
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return 0, err
	}
	var b [1]byte
	var n int
	rerr := rc.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK)
		return err != unix.EAGAIN && err != unix.EINTR
	})
	if rerr != nil {
		return 0, rerr
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	return b[0], err
}

// readOpening reads an opening, finds its session, checks the proof, and answers. A peer that
// cannot prove the key gets no answer.
func (x *acceptor) readOpening(nc net.Conn, timeout time.Duration) (opened, error) {
	if err := x.setWaitDeadline(nc, timeout); err != nil {
		return opened{}, err
	}
	var raw [wire.OpeningSize]byte
	if _, err := io.ReadFull(nc, raw[:wire.PrefixSize]); err != nil {
		return opened{}, err
	}
	if err := wire.CheckPrefix(raw[:wire.PrefixSize]); err != nil {
		return opened{}, err
	}
	if err := nc.SetDeadline(time.Now().Add(x.agent.cfg.OpeningTimeout)); err != nil {
		return opened{}, err
	}
	if _, err := io.ReadFull(nc, raw[wire.PrefixSize:]); err != nil {
		return opened{}, err
	}
	o, err := wire.ParseOpening(raw[:])
	if err != nil {
		return opened{}, err
	}
	out, key, err := x.admit(o, raw[:], nc)
	if err != nil {
		return opened{}, err
	}
	var answer wire.Answer
	_, _ = rand.Read(answer.Nonce[:])
	if _, err := nc.Write(answer.AppendTo(nil, raw[:], key[:])); err != nil {
		return opened{}, err
	}
	if out.session != nil {
		out.session.out.grant(uint64(o.Window) << 10)
	}
	return out, nc.SetDeadline(time.Time{})
}

// setWaitDeadline sets the deadline of a connection on which the agent waits for a peer's opening.
// If the agent is closing, it returns an error instead, because close sets an earlier deadline.
func (x *acceptor) setWaitDeadline(nc net.Conn, timeout time.Duration) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return net.ErrClosed
	}
	return nc.SetDeadline(time.Now().Add(timeout))
}

// admit finds the session of an opening, or the peer that is expected to send the opening before a
// session. It verifies the opening with the key, which it returns, and marks the opening as used.
func (x *acceptor) admit(o wire.Opening, raw []byte, nc net.Conn) (opened, agentapi.Key, error) {
	s := x.agent.session(o.Session)
	if s == nil || s.role != roleAcceptor {
		peer, key, err := x.agent.expected.admit(o, raw, isTLS(nc), time.Now())
		return opened{peer: peer}, key, err
	}
	if err := wire.VerifyOpening(raw, s.req.Key[:]); err != nil {
		return opened{}, s.req.Key, err
	}
	if isTLS(nc) != s.params.TLS {
		return opened{}, s.req.Key, errTLSDiffers
	}
	if !s.useGeneration(int(o.Index), o.Generation) {
		return opened{}, s.req.Key, fmt.Errorf("opening %d/%d of session %x was used before", o.Index, o.Generation, o.Session)
	}
	if err := s.congestion.tune(nc); err != nil {
		return opened{}, s.req.Key, err
	}
	return opened{peer: s.req.Peer.Addr, session: s, index: int(o.Index)}, s.req.Key, nil
}

var errTLSDiffers = errors.New("the session and the connection differ about TLS")

func isTLS(nc net.Conn) bool {
	_, secured := nc.(*tls.Conn)
	return secured
}
