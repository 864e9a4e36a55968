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
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// errUnknown means that the peer closed a new connection without an answer, because it does not
// know the session or the key is wrong.
var errUnknown = errors.New("the peer does not accept the session")

// dialer opens a session's connections to the peer. Only the client's agent uses it.
type dialer struct {
	s    *session
	once sync.Once

	mu     sync.Mutex
	early  *early // nil if it was taken or there was none
	err    error  // why there is no connection
	warm   int    // connections that came from the pool
	wanted int    // number of connections that are wanted
	why    string // the reason for that number
}

// start opens the connections to the peer. Only the first call has an effect. The first connection
// shows the path, from which the number of connections is determined.
func (d *dialer) start() {
	d.once.Do(func() {
		short := d.s.params.Connections == 0 && d.s.agent.sizes.likelyShort(d.s.req.Server)
		d.mu.Lock()
		d.wanted = 1 // set here, because the session may be over before openMore runs
		if short {
			d.why = "the server's sessions have been short"
		}
		d.mu.Unlock()
		d.s.spawn(func() { d.maintain(0) })
		d.s.spawn(func() { d.openMore(short) })
	})
}

// openMore opens the other connections. Auto mode always uses at least two connections: it opens
// the second at once, and the others when the first has shown the path. short reports whether the
// session will probably be short. If it will, openMore waits until the session has turned out not
// to be.
func (d *dialer) openMore(short bool) {
	s := d.s
	opened, auto := 1, s.params.Connections == 0
	again := time.NewTicker(s.agent.cfg.AutoInterval)
	defer again.Stop()
	switch {
	case short:
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
		s.spawn(func() { d.maintain(1) })
	}
	select {
	case <-s.opened:
	case <-s.over:
		return
	}
	d.addConns(&opened)
	if !auto {
		return
	}
	for {
		select {
		case <-s.over:
			return
		case <-again.C:
			d.addConns(&opened)
		}
	}
}

// addConns opens further connections, up to the number that the present figures of the path call
// for. opened is the number opened so far.
func (d *dialer) addConns(opened *int) {
	s := d.s
	p, why := s.params.Connections, "as configured"
	if p == 0 {
		path := s.congestion.path()
		p, why = chooseConns(path, s.agent.cfg.AutoConnections)
	}
	p = min(max(p, len(s.ports())), s.agent.cfg.MaxConnections)
	d.mu.Lock()
	if p > d.wanted || d.why == "" {
		d.wanted, d.why = max(p, *opened), why
	}
	d.mu.Unlock()
	for ; *opened < p; *opened++ {
		index := *opened
		s.spawn(func() { d.maintain(index) })
	}
}

// maintain keeps the connection with the given index established while the session needs it.
func (d *dialer) maintain(index int) {
	pause := newBackoff(20*time.Millisecond, 500*time.Millisecond)
	refusals := 0
	for d.s.wantsConns() {
		nc, opening, err := d.connect(index)
		if err == nil {
			refusals = 0
			pause.reset()
			err = d.serve(nc, index, opening)
		} else {
			if errors.Is(err, errUnknown) || errors.Is(err, wire.ErrProof) || errors.Is(err, unix.ECONNREFUSED) {
				refusals++
			}
			d.failed(err, refusals)
		}
		if err == nil || !pause.wait(d.s.ctx) {
			return
		}
	}
}

// serve runs a connection to its end. If the connection was released, serve returns it to the pool.
func (d *dialer) serve(nc net.Conn, index int, opening []byte) error {
	err := d.s.serveConn(nc, index, opening)
	if err != nil {
		resetNow(nc)
		d.s.agent.log.Debug("data connection lost", "session", d.s.req.ID, "index", index, "error", err)
		return err
	}
	d.s.agent.warm.put(d.warmKey(index), nc)
	return nil
}

// failed records why no connection could be opened. A peer that refuses twice while no connection
// exists no longer has the session, and the session ends.
func (d *dialer) failed(err error, refusals int) {
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
	if refusals >= 2 && len(*d.s.conns.Load()) == 0 {
		d.s.finish(agentapi.ReasonPeerLost, err.Error(), 0)
	}
}

// connect returns a connection for the session: one from the pool if there is one, otherwise a new
// one. On a new connection the peer has already answered the opening and proved its key. On one
// from the pool it did so for an earlier session. Waiting for the answer there would cost every
// session a round trip, so connect returns the opening that the peer still has to answer.
func (d *dialer) connect(index int) (nc net.Conn, opening []byte, err error) {
	pool, key := d.s.agent.warm, d.warmKey(index)
	for nc := pool.take(key); nc != nil; nc = pool.take(key) {
		if !isClosed(nc) && d.s.congestion.tune(nc) == nil {
			if opening, err := d.sendOpening(nc, index); err == nil {
				d.mu.Lock()
				d.warm++
				d.mu.Unlock()
				return nc, opening, nil
			}
		}
		resetNow(nc) // the connection was lost in the pool
	}
	if nc, err = d.dialPeer(index); err != nil {
		return nil, nil, err
	}
	if err = d.s.congestion.tune(nc); err == nil {
		if opening, err = d.sendOpening(nc, index); err == nil {
			err = d.s.agent.readAnswer(nc, opening, d.s.req.Key, d.s.req.Peer.Addr)
		}
	}
	if err != nil {
		resetNow(nc)
		return nil, nil, err
	}
	return nc, nil, nil
}

// dialPeer connects to the data port of the peer that belongs to the index.
func (d *dialer) dialPeer(index int) (net.Conn, error) {
	s := d.s
	if index == 0 {
		if nc := d.takeEarly(); nc != nil {
			return nc, nil
		}
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.agent.cfg.OpeningTimeout)
	defer cancel()
	return s.agent.dialPeer(ctx, s.own, d.warmKey(index).peer, s.params, s.marks.current().Peer)
}

// dialPeer connects to a peer's data port, from the data address own. Under TLS it performs the
// handshake as well.
func (a *Agent) dialPeer(ctx context.Context, own netip.Addr, to netip.AddrPort, params agentapi.Params, dscp uint8) (net.Conn, error) {
	t, _ := a.transports.byName(params.Transport)
	nc, err := t.Dial(ctx, own, to, params.CongestionControl, dscp)
	if err != nil {
		return nil, err
	}
	if !params.TLS {
		return nc, nil
	}
	tc := tls.Client(nc, a.dataTLS)
	if err := tc.HandshakeContext(ctx); err != nil {
		resetNow(nc)
		return nil, fmt.Errorf("TLS with agent %v: %w", to, err)
	}
	return tc, nil
}

// sendOpening sends an opening, which proves the key to the peer, and returns the opening that the
// peer has to answer.
func (d *dialer) sendOpening(nc net.Conn, index int) ([]byte, error) {
	s := d.s
	window := uint32(s.in.limit.Load() >> 10) // in KiB
	o := wire.Opening{Index: uint16(index), Generation: s.nextGeneration(index), Session: s.req.ID, Window: window}
	return s.agent.sendOpening(nc, o, s.req.Key)
}

// sendOpening sends an opening with a new nonce and the proof of the key, and returns its bytes.
func (a *Agent) sendOpening(nc net.Conn, o wire.Opening, key agentapi.Key) ([]byte, error) {
	_, _ = rand.Read(o.Nonce[:])
	raw := o.AppendTo(nil, key[:])
	if err := nc.SetDeadline(time.Now().Add(a.cfg.OpeningTimeout)); err != nil {
		return nil, err
	}
	if _, err := nc.Write(raw); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnknown, err)
	}
	return raw, nc.SetDeadline(time.Time{})
}

// readAnswer waits for the answer of a peer to the opening.
func (a *Agent) readAnswer(nc net.Conn, opening []byte, key agentapi.Key, peer netip.Addr) error {
	if err := nc.SetDeadline(time.Now().Add(a.cfg.OpeningTimeout)); err != nil {
		return err
	}
	err := checkAnswer(opening, key[:], func(b []byte) error { _, err := io.ReadFull(nc, b); return err })
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		err = fmt.Errorf("%w: %w", errUnknown, err)
	}
	if err != nil {
		return fmt.Errorf("opening to agent %v: %w", peer, err)
	}
	return nc.SetDeadline(time.Time{})
}

// checkAnswer reads the answer to the opening and checks the peer's proof.
func checkAnswer(opening, key []byte, read func([]byte) error) error {
	var answer [wire.AnswerSize]byte
	if err := read(answer[:]); err != nil {
		return err
	}
	_, err := wire.ParseAnswer(answer[:], opening, key)
	return err
}

// wait waits until the first connection to the peer is established. Otherwise it returns the reason
// for the lack of a connection.
func (d *dialer) wait(ctx context.Context) error {
	s := d.s
	select {
	case <-s.opened:
		return nil
	case <-ctx.Done():
	case <-s.over:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	return fmt.Errorf("no connection to agent %v yet: %w", s.req.Peer.Addr, context.DeadlineExceeded)
}

// backoff is an exponential back-off.
type backoff struct{ first, most, next time.Duration }

func newBackoff(first, most time.Duration) *backoff {
	return &backoff{first: first, most: most, next: first}
}

func (b *backoff) reset() { b.next = b.first }

// wait sleeps for the current delay and doubles it, up to the maximum. It returns false if
// ctx ends first.
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

// early is a connection to the peer that is opened while the session is being prepared, to save a
// round trip at commit. It carries no data until then.
type early struct {
	done chan struct{}
	conn net.Conn
}

// dialEarly starts to connect to the peer, unless a warm connection is available.
func (d *dialer) dialEarly() {
	s := d.s
	if s.params.TLS || s.agent.warm.has(d.warmKey(0)) {
		return
	}
	e := &early{done: make(chan struct{})}
	d.mu.Lock()
	d.early = e
	d.mu.Unlock()
	run := s.spawn(func() {
		defer close(e.done)
		ctx, cancel := context.WithTimeout(s.ctx, s.agent.cfg.OpeningTimeout)
		defer cancel()
		nc, err := s.transport().Dial(ctx, s.own, d.warmKey(0).peer, s.params.CongestionControl, s.marks.current().Peer)
		if err == nil {
			e.conn = nc
		}
	})
	if !run {
		close(e.done)
	}
}

// takeEarly waits until the early connection is established and returns it. It returns nil if there
// is none, or if the dial has failed.
func (d *dialer) takeEarly() net.Conn {
	d.mu.Lock()
	e := d.early
	d.early = nil
	d.mu.Unlock()
	if e == nil {
		return nil
	}
	<-e.done // the dial has a deadline
	return e.conn
}

// dropEarly closes the early connection if it was not taken.
func (d *dialer) dropEarly() {
	if nc := d.takeEarly(); nc != nil {
		_ = nc.Close()
	}
}
