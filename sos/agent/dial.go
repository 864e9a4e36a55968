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
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/sos/agentapi"
	"github.com/sluice-net/sluice/sos/wire"
)

// errUnknown means that the peer closed a fresh connection without an answer:
// it does not know the session, or the key is wrong.
var errUnknown = errors.New("the peer does not accept the session")

// open starts the connections to the peer, once. The first decides how many
// there will be.
func (s *session) open() {
	s.mu.Lock()
	if s.dialing || s.ended || s.role != roleDialer {
		s.mu.Unlock()
		return
	}
	s.dialing = true
	s.mu.Unlock()
	s.spawn(func() { s.link(0) })
	s.spawn(s.openMore)
}

// openMore opens the other connections: a second at once where the number is auto,
// which is never content with one, the rest when the first has shown the path. Where
// the server's sessions have been short, one has to show first that it is not.
func (s *session) openMore() {
	opened, auto := 1, s.params.Connections == 0
	again := time.NewTicker(s.agent.cfg.AutoInterval)
	defer again.Stop()
	switch {
	case auto && s.agent.sizes.short(s.req.Server):
		s.mu.Lock()
		s.p, s.why = 1, "the server's sessions have been short"
		s.mu.Unlock()
		later := time.NewTimer(4 * s.agent.cfg.AutoInterval)
		defer later.Stop()
		select {
		case <-s.large:
		case <-later.C:
		case <-s.over:
			return
		}
	case auto && s.agent.cfg.AutoConnections > 1:
		opened = 2
		s.spawn(func() { s.link(1) })
	}
	select {
	case <-s.opened:
	case <-s.over:
		return
	}
	s.addLinks(&opened)
	if !auto {
		return
	}
	for {
		select {
		case <-s.over:
			return
		case <-again.C:
			s.addLinks(&opened)
		}
	}
}

// addLinks opens as many connections as the path as known now asks for.
func (s *session) addLinks(opened *int) {
	p, why := s.params.Connections, "as configured"
	if p == 0 {
		path := s.path()
		p, why = choose(path, s.agent.cfg.AutoConnections)
		p = max(p, s.spares(path.rtt))
	}
	p = min(max(p, len(s.ports())), s.agent.cfg.MaxConnections)
	s.mu.Lock()
	if p > s.p {
		s.p, s.why = max(p, *opened), why
	}
	s.mu.Unlock()
	for ; *opened < p; *opened++ {
		index := *opened
		s.spawn(func() { s.link(index) })
	}
}

// ports are the peer's data ports that the session uses.
func (s *session) ports() []uint16 {
	ports := s.req.Peer.DataPorts
	if n := s.params.Paths; n > 0 && n < len(ports) {
		ports = ports[:n]
	}
	return ports
}

// link keeps connection index standing while the session lives.
func (s *session) link(index int) {
	pause := newBackoff(20*time.Millisecond, 500*time.Millisecond)
	refusals := 0
	for s.live() {
		nc, opening, err := s.connect(index)
		if err == nil {
			refusals = 0
			pause.reset()
			err = s.serve(nc, index, opening)
		} else {
			if errors.Is(err, errUnknown) || errors.Is(err, wire.ErrProof) || errors.Is(err, unix.ECONNREFUSED) {
				refusals++
			}
			s.openFailed(err, refusals)
		}
		if err == nil || !pause.wait(s.ctx) {
			return
		}
	}
}

// serve runs a connection to its end. After a release it goes to the pool. An
// opening that the peer has still to answer is not nil.
func (s *session) serve(nc net.Conn, index int, opening []byte) error {
	c, err := newConn(s, index, nc)
	if err == nil {
		c.opening = opening
		err = s.attach(c)
	}
	if err != nil {
		resetNow(nc)
		return err
	}
	err = c.serve()
	s.detach(c, err)
	if err == nil {
		s.unmark(nc)
		s.agent.warm.put(s.warmKey(index), nc)
	} else {
		s.agent.log.Debug("data connection lost", "session", s.req.ID, "index", index, "error", err)
	}
	return err
}

// openFailed notes why no connection stands. A peer that refuses twice while
// none stands has no use for the session.
func (s *session) openFailed(err error, refusals int) {
	s.mu.Lock()
	s.openError = err
	s.mu.Unlock()
	if refusals >= 2 && len(*s.conns.Load()) == 0 {
		s.finish(agentapi.ReasonPeerLost, err.Error(), 0)
	}
}

// connect returns a connection for the session: a warm one if there is, else a
// fresh one. On a fresh one the peer has proved itself; on a warm one it had to
// do so before, and its answer to the opening, which is returned, is not waited
// for: that would cost every session a round trip.
func (s *session) connect(index int) (nc net.Conn, opening []byte, err error) {
	for nc := s.agent.warm.take(s.warmKey(index)); nc != nil; nc = s.agent.warm.take(s.warmKey(index)) {
		if !ended(nc) && s.tune(nc) == nil {
			if opening, err := s.sendOpening(nc, index); err == nil {
				s.mu.Lock()
				s.warm++
				s.mu.Unlock()
				return nc, opening, nil
			}
		}
		resetNow(nc) // it died in the pool
	}
	if nc, err = s.dialPeer(index); err != nil {
		return nil, nil, err
	}
	if err = s.tune(nc); err == nil {
		if opening, err = s.sendOpening(nc, index); err == nil {
			err = s.readAnswer(nc, opening)
		}
	}
	if err != nil {
		resetNow(nc)
		return nil, nil, err
	}
	return nc, nil, nil
}

// dialPeer connects to the peer's data port of the index.
func (s *session) dialPeer(index int) (net.Conn, error) {
	if index == 0 {
		if nc := s.takeEarly(); nc != nil {
			return nc, nil
		}
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.agent.cfg.OpeningTimeout)
	defer cancel()
	ports := s.ports()
	to := netip.AddrPortFrom(s.req.Peer.Addr, ports[index%len(ports)])
	nc, err := s.agent.transport(s).Dial(ctx, s.own, to, s.params.CongestionControl, s.marked().Peer)
	if err != nil {
		return nil, err
	}
	if !s.params.TLS {
		return nc, nil
	}
	tc := tls.Client(nc, s.agent.dataTLS)
	if err := tc.HandshakeContext(ctx); err != nil {
		resetNow(nc)
		return nil, fmt.Errorf("TLS with agent %v: %w", to, err)
	}
	return tc, nil
}

// sendOpening proves the key to the peer, and returns what the peer has to answer.
func (s *session) sendOpening(nc net.Conn, index int) ([]byte, error) {
	o := wire.Opening{Index: uint16(index), Generation: s.nextGeneration(index), Session: s.req.ID, Window: s.firstWindow()}
	_, _ = rand.Read(o.Nonce[:])
	raw := o.AppendTo(nil, s.req.Key[:])
	if err := nc.SetDeadline(time.Now().Add(s.agent.cfg.OpeningTimeout)); err != nil {
		return nil, err
	}
	if _, err := nc.Write(raw); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnknown, err)
	}
	return raw, nc.SetDeadline(time.Time{})
}

// readAnswer waits for the answer to the opening.
func (s *session) readAnswer(nc net.Conn, opening []byte) error {
	if err := nc.SetDeadline(time.Now().Add(s.agent.cfg.OpeningTimeout)); err != nil {
		return err
	}
	err := s.checkAnswer(opening, func(b []byte) error { _, err := io.ReadFull(nc, b); return err })
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		err = fmt.Errorf("%w: %w", errUnknown, err)
	}
	if err != nil {
		return fmt.Errorf("opening to agent %v: %w", s.req.Peer.Addr, err)
	}
	return nc.SetDeadline(time.Time{})
}

// checkAnswer reads the answer to the opening and checks the peer's proof.
func (s *session) checkAnswer(opening []byte, read func([]byte) error) error {
	var answer [wire.AnswerSize]byte
	if err := read(answer[:]); err != nil {
		return err
	}
	_, err := wire.ParseAnswer(answer[:], opening, s.req.Key[:])
	return err
}

// firstWindow is the present window in KiB, as an opening carries it.
func (s *session) firstWindow() uint32 { return uint32(s.in.limit.Load() >> 10) }

// waitOpen waits until the first connection to the peer stands.
func (s *session) waitOpen(ctx context.Context) error {
	select {
	case <-s.opened:
		return nil
	case <-ctx.Done():
	case <-s.over:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.openError != nil {
		return s.openError
	}
	return fmt.Errorf("no connection to agent %v yet: %w", s.req.Peer.Addr, context.DeadlineExceeded)
}

// backoff is a growing pause.
type backoff struct{ first, most, next time.Duration }

func newBackoff(first, most time.Duration) *backoff {
	return &backoff{first: first, most: most, next: first}
}

func (b *backoff) reset() { b.next = b.first }

// wait pauses; it reports false when ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	t := time.NewTimer(b.next)
	defer t.Stop()
	b.next = min(2*b.next, b.most)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
