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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/sos/wire"
)

// tlsHandshake is the first byte of a TLS connection.
const tlsHandshake = 0x16

// acceptData accepts connections on one data port until the listener closes.
func (a *Agent) acceptData(ln net.Listener) {
	patient := listen.New(ln, func(err error) {
		a.strange.Warn(a.log, "accept on data port", "address", ln.Addr(), "error", err)
	})
	defer context.AfterFunc(a.ctx, func() { _ = patient.Close() })()
	for {
		nc, err := patient.Accept()
		if err != nil {
			return
		}
		seats := a.seats(nc)
		select {
		case seats <- struct{}{}:
			a.wg.Go(func() { a.greet(nc, seats) })
		default:
			a.metrics.rejected.Inc()
			resetNow(nc)
		}
	}
}

// seats says among whom a fresh connection counts: those that have not proved a key,
// however many and silent they are, must not keep the peers of sessions out.
func (a *Agent) seats(nc net.Conn) chan struct{} {
	from, err := netip.ParseAddrPort(nc.RemoteAddr().String())
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil && a.hosting[from.Addr().Unmap()] > 0 {
		return a.expected
	}
	return a.unauthenticated
}

// greet serves one accepted connection: sessions, one after the other. Until
// the first opening it holds one of the seats, of which there are few.
func (a *Agent) greet(nc net.Conn, seats <-chan struct{}) {
	fresh := true
	welcome := func() {
		if fresh {
			fresh = false
			<-seats
		}
	}
	defer welcome()
	if !a.track(nc) {
		return
	}
	defer a.untrack(nc)
	c, err := a.unwrap(nc)
	for first := true; err == nil; first = false {
		patience := a.cfg.OpeningTimeout
		if !first {
			patience = a.cfg.WarmIdle + a.cfg.OpeningTimeout
		}
		var s *session
		var index int
		s, index, err = a.acceptOpening(c, patience)
		if err != nil && first {
			a.metrics.rejected.Inc()
			a.log.Debug("data connection rejected", "from", nc.RemoteAddr(), "error", err)
		}
		if err == nil {
			welcome()
			err = s.carry(c, index, nil)
		}
	}
	resetNow(nc)
}

// unwrap looks at the first byte and puts TLS on if it is asked for.
func (a *Agent) unwrap(nc net.Conn) (net.Conn, error) {
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

// peek returns the first byte without taking it.
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

// acceptOpening reads an opening, finds its session, checks the proof, and
// answers. Nothing is said to those who cannot prove the key.
func (a *Agent) acceptOpening(nc net.Conn, patience time.Duration) (*session, int, error) {
	if err := a.wait(nc, patience); err != nil {
		return nil, 0, err
	}
	var raw [wire.OpeningSize]byte
	if _, err := io.ReadFull(nc, raw[:wire.PrefixSize]); err != nil {
		return nil, 0, err
	}
	if err := wire.CheckPrefix(raw[:wire.PrefixSize]); err != nil {
		return nil, 0, err
	}
	if err := nc.SetDeadline(time.Now().Add(a.cfg.OpeningTimeout)); err != nil {
		return nil, 0, err
	}
	if _, err := io.ReadFull(nc, raw[wire.PrefixSize:]); err != nil {
		return nil, 0, err
	}
	o, err := wire.ParseOpening(raw[:])
	if err != nil {
		return nil, 0, err
	}
	s, err := a.admit(o, raw[:], nc)
	if err != nil {
		return nil, 0, err
	}
	var answer wire.Answer
	_, _ = rand.Read(answer.Nonce[:])
	if _, err := nc.Write(answer.AppendTo(nil, raw[:], s.req.Key[:])); err != nil {
		return nil, 0, err
	}
	s.out.grant(uint64(o.Window) << 10)
	return s, int(o.Index), nc.SetDeadline(time.Time{})
}

// wait sets the deadline of a connection on which the agent waits for a peer,
// unless the agent closes: then closeAccepted has set, or will set, a nearer one.
func (a *Agent) wait(nc net.Conn, patience time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return net.ErrClosed
	}
	return nc.SetDeadline(time.Now().Add(patience))
}

// admit finds the session of an opening and uses the opening up.
func (a *Agent) admit(o wire.Opening, raw []byte, nc net.Conn) (*session, error) {
	s := a.session(o.Session)
	if s == nil || s.role != roleAcceptor {
		return nil, fmt.Errorf("session %x is not announced", o.Session)
	}
	if err := wire.VerifyOpening(raw, s.req.Key[:]); err != nil {
		return nil, err
	}
	if _, secured := nc.(*tls.Conn); secured != s.params.TLS {
		return nil, errors.New("the session and the connection differ about TLS")
	}
	if !s.generation(int(o.Index), o.Generation) {
		return nil, fmt.Errorf("opening %d/%d of session %x was used before", o.Index, o.Generation, o.Session)
	}
	if err := s.congestion.tune(nc); err != nil {
		return nil, err
	}
	return s, nil
}
