package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

var (
	errSilent   = errors.New("nothing heard from the peer")
	errReplaced = errors.New("replaced by a later connection of the same index")
	errOver     = errors.New("session is over")
)

// role is the role of an agent for the connections between the agents: it dials or accepts them.
type role int

const (
	roleDialer   role = iota // the client's agent
	roleAcceptor             // the server's agent
)

// session is one transfer at one of its agents.
type session struct {
	agent   *Agent
	req     agentapi.PrepareRequest
	role    role
	own     netip.Addr      // the agent's address of the session's family
	params  agentapi.Params // with defaults filled in
	copying bool            // whether payload goes through user space
	mem     *buffers
	in      *sink   // peer to end host
	out     *source // end host to peer

	ctx    context.Context
	cancel context.CancelFunc
	over   chan struct{} // closed when the session has ended
	opened chan struct{} // closed when the first connection to the peer is established
	large  chan struct{} // closed when more bytes have been carried than in a short session
	grown  sync.Once
	wg     sync.WaitGroup // all goroutines of the session
	conns  atomic.Pointer[[]*conn]
	start  atomic.Pointer[string] // description of the pace at which the session started

	active    atomic.Int64 // time of the last byte moved, nanoseconds of the agent's clock
	peerEnded atomic.Bool  // whether the peer has ended its side of the session by a reset

	dial       dialer // used by the client's agent
	congestion congestionManager
	marks      marker

	mu        sync.Mutex // a leaf: nothing else is locked under it
	phase     agentapi.Phase
	port      uint16
	reply     agentapi.PrepareReply // the reply to prepare
	ended     bool
	graceful  bool // whether both directions are complete at this agent
	peerDone  bool // whether the peer is complete, too, and has released a connection
	delivered bool // whether the end host has acknowledged everything
	end       *endHost
	listener  *net.TCPListener
	clientISN uint32 // sequence number of the client's SYN, if clientSYN is set
	clientSYN bool
	reserved  *reservation
	since     int64 // when the phase began
	heard     int64 // when the peer was last heard on connections that have been closed
	last      []uint32
	started   time.Time
	setup     time.Duration
	lost      int
	retrans   uint64
	reason    agentapi.Reason
	detail    string
}

func newSession(a *Agent, req agentapi.PrepareRequest, params agentapi.Params) *session {
	s := &session{
		agent: a, req: req, params: params, phase: agentapi.PhasePrepared,
		over: make(chan struct{}), opened: make(chan struct{}), large: make(chan struct{}),
		started: time.Now(), since: a.now(), own: a.cfg.addrFor(req.Client.Addr()),
		copying: params.TLS, last: make([]uint32, a.cfg.MaxConnections),
	}
	s.dial.s, s.congestion.s, s.marks.s, s.marks.marks = s, s, s, req.Marks
	if req.Role == agentapi.RoleServer {
		s.role = roleAcceptor
	}
	if s.copying {
		s.mem = a.buffersOf(params.ChunkBytes)
	}
	s.ctx, s.cancel = context.WithCancel(a.ctx)
	s.conns.Store(&[]*conn{})
	s.active.Store(a.now())
	most := max(params.ChunkBytes*params.Queue*orDefault(params.Connections, a.cfg.AutoConnections), 2*(params.ChunkBytes+wire.ChunkCost))
	credit := a.peers.initialWindow(req.Peer.Addr, a.cfg.InitialWindow)
	for _, p := range a.paths(&req) {
		credit = max(credit, creditTrips*p.bdp())
	}
	s.in = newSink(s, window{
		size: min(most, credit), most: most,
		rtt: func() time.Duration { return time.Duration(s.congestion.rtt.Load()) },
	})
	s.out = newSource(s, most)
	return s
}

// spawn runs f in a goroutine of the session. If the session has ended, it returns false and does
// not run f.
func (s *session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.wg.Go(f) // under mu, so that no goroutine waits for the group before the end
	return true
}

// noteProgress records that bytes have moved. total is the number of bytes that their direction has
// carried so far.
func (s *session) noteProgress(total uint64) {
	s.active.Store(s.agent.now())
	if total > shortSession {
		s.grown.Do(func() { close(s.large) })
	}
}

// setEndHost sets the session's end host and starts to carry data. If the session has ended, it
// aborts the end host's connection and returns false.
func (s *session) setEndHost(e *endHost) bool {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		e.abort()
		return false
	}
	s.end = e
	s.setRunning()
	s.mu.Unlock()
	if err := s.marks.markEnds(); err != nil {
		s.agent.log.Debug("DSCP towards an end host", "session", s.req.ID, "error", err)
	}
	s.spawn(s.in.run)
	s.in.start(e)
	s.out.start(e)
	return true
}

// setRunning enters the running phase if both the end host and the peer are connected. mu is held.
func (s *session) setRunning() {
	if s.end == nil || s.phase == agentapi.PhaseRunning || s.phase == agentapi.PhaseClosing {
		return
	}
	select {
	case <-s.opened:
		s.phase, s.since = agentapi.PhaseRunning, s.agent.now()
		s.setup = time.Since(s.started)
	default:
	}
}

// checkComplete ends or closes the session if both directions are complete.
func (s *session) checkComplete() {
	flag, sent := s.out.done()
	if !sent {
		return
	}
	if flag == wire.FlagRST {
		s.finish(s.ownReset(), "", 0) // the peer gives up its connections when its own end host has been reset
		if s.in.isReset() {
			s.endConns(wire.CauseEndHost) // the other end host has been reset already, and the peer waits as well
		}
		return
	}
	if !s.in.done() {
		return
	}
	s.mu.Lock()
	if s.graceful || s.ended {
		s.mu.Unlock()
		return
	}
	s.graceful, s.phase, s.since = true, agentapi.PhaseClosing, s.agent.now()
	end := s.end
	conns := *s.conns.Load()
	peerDone := s.peerDone
	s.mu.Unlock()
	end.complete()
	s.agent.peers.learn(s)
	s.spawn(s.awaitDelivery)
	if s.role == roleAcceptor && !(peerDone && len(conns) == 0) {
		s.sendAcks()
		return // the dialing agent releases the connections when it is done as well
	}
	for _, c := range conns {
		c.release.Store(true)
		c.kick()
	}
}

// complete reports whether nothing is left to do for the session. mu is held.
func (s *session) complete() bool {
	return s.graceful && s.delivered && s.peerDone && len(*s.conns.Load()) == 0
}

// awaitDelivery waits until the end host has acknowledged all data, because until then the switches
// have to forward its packets to this agent. If nothing else is left to do, it then ends the
// session.
func (s *session) awaitDelivery() {
	pause := newBackoff(2*time.Millisecond, 100*time.Millisecond)
	for !s.end.acknowledged() {
		if !pause.wait(s.ctx) {
			return
		}
	}
	s.mu.Lock()
	s.delivered = true
	over := s.complete()
	s.mu.Unlock()
	if over {
		s.finish(agentapi.ReasonClosed, "", 0)
	}
}

// describe returns the session as listings show it.
func (s *session) describe() agentapi.Session {
	counters, marks := s.counters(), s.marks.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	return agentapi.Session{
		ID: s.req.ID, Role: s.req.Role, Phase: s.phase, Client: s.req.Client, Server: s.req.Server,
		Peer: s.req.Peer.Addr, Port: s.port, Reply: s.reply, Params: s.params, Started: s.started,
		SetupTime: agentapi.Duration(s.setup), Counters: counters, Context: s.req.Context, Marks: marks,
	}
}

// liveInfo returns the session as the event stream shows it.
func (s *session) liveInfo() agentapi.Live {
	counters := s.counters()
	s.mu.Lock()
	defer s.mu.Unlock()
	return agentapi.Live{ID: s.req.ID, Role: s.req.Role, Phase: s.phase, Counters: counters}
}

// record returns the record of the session after its end.
func (s *session) record() agentapi.SessionRecord {
	r := agentapi.SessionRecord{Session: s.describe(), Ended: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Reason, r.Detail = s.reason, s.detail
	return r
}

// counters returns the session's figures.
func (s *session) counters() agentapi.Counters {
	conns := *s.conns.Load()
	c := agentapi.Counters{
		ChunksSent: s.out.chunks.Load(), ChunksResent: s.out.resent.Load(),
		ConnsOpen: len(conns), RTTMicros: uint64(s.congestion.rtt.Load() / 1000),
	}
	c.BytesUp, c.BytesDown = s.out.bytes.Load(), s.in.bytes.Load()
	if s.role == roleAcceptor {
		c.BytesUp, c.BytesDown = c.BytesDown, c.BytesUp
	}
	for _, x := range conns {
		c.Retransmits += x.retransmits()
		c.Pace += x.pacer.paceOf(x)
	}
	if text := s.start.Load(); text != nil {
		c.Start = *text
	}
	s.in.mu.Lock()
	c.BufferedBytes, c.WindowBytes = uint64(max(0, s.in.held)), uint64(s.in.window.size)
	c.ReorderChunks = s.in.order.Len()
	s.in.mu.Unlock()
	s.dial.mu.Lock()
	c.ConnsWarm, c.Connections, c.Why = s.dial.warm, s.dial.wanted, s.dial.why
	s.dial.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.ConnsLost = s.lost
	c.Retransmits += s.retrans
	if s.role == roleAcceptor {
		c.Connections = len(conns)
	}
	return c
}

// tick does the session's periodic work, every half Beat. It never blocks.
func (s *session) tick(now int64) {
	for _, c := range *s.conns.Load() {
		c.tick(now)
	}
	s.congestion.update()
	s.mu.Lock()
	phase, since, graceful, end := s.phase, s.since, s.graceful, s.end
	peerDone, delivered := s.peerDone, s.delivered
	s.mu.Unlock()
	cfg := &s.agent.cfg
	heard := s.lastHeard()
	age := func(t int64) time.Duration { return time.Duration(now - t) }
	idle := orDefault(time.Duration(s.req.Idle), cfg.IdleTimeout)
	timeout := orDefault(time.Duration(s.req.PeerTimeout), cfg.PeerTimeout)
	switch {
	case heard != 0 && !peerDone && age(max(heard, since)) > timeout:
		s.finish(agentapi.ReasonPeerLost, "nothing heard from the peer for "+timeout.String(), wire.CauseAgent)
	case graceful:
		// The peer has not answered a release, or the end host accepts nothing.
		if s.role == roleDialer && delivered && age(since) > cfg.OpeningTimeout || age(since) > idle {
			s.finish(agentapi.ReasonClosed, "", 0)
		}
	case (phase == agentapi.PhasePrepared || phase == agentapi.PhaseCommitted) && age(since) > cfg.PrepareTimeout:
		s.finish(agentapi.ReasonExpired, "in phase "+string(phase)+" for "+cfg.PrepareTimeout.String(), wire.CauseAbort)
	case age(s.active.Load()) > idle && phase == agentapi.PhaseRunning:
		s.finish(agentapi.ReasonIdle, "no byte for "+idle.String(), wire.CauseAgent)
	case end != nil && end.dead() && (s.out.ended() || s.out.blocked()):
		s.finish(s.ownReset(), "", wire.CauseEndHost)
	}
}
