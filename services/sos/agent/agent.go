package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// keepPipes bounds the idle pipes that an agent keeps.
const keepPipes = 256

// Agent is a running SOS agent.
type Agent struct {
	cfg        Config
	log        *slog.Logger
	warnLimit  lograte.Limit // limits warnings that any host can cause
	epoch      time.Time
	transports transports
	buffer     int                   // bytes that one data connection may have in flight
	macs       map[netip.Addr]string // of the interfaces that carry the data addresses
	congestion congestion
	warnings   []string
	controlTLS *tls.Config
	dataTLS    *tls.Config

	acceptor *acceptor
	expected expectedPeers
	warming  chan struct{} // holds a token while a list of peers is handled
	pipes    *pipePool
	ports    *ports
	routes   *routes
	sizes    *sessionSizes
	warm     *warmPool
	peers    *peers
	pacers   *pacers
	starts   *startRoutes
	metrics  *metrics
	total    totals
	drift    *drift.Counts

	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	resets    []*resetWatch // empty if packet sockets are not permitted
	control   net.Listener
	server    *control.Server[agentapi.SessionRecord, agentapi.Live]
	data      []net.Listener
	dataPorts []uint16

	mu             sync.Mutex
	closed         bool
	sessions       map[agentapi.SessionID]*session
	probing        map[netip.Addr]bool
	awaitingClient map[netip.AddrPort]*session // sessions by the address and port at which they wait for their client
	bufferPools    map[int]*buffers
}

// Run runs an agent until ctx ends. Then it ends the agent's sessions with RST and closes
// everything that the agent has opened.
func Run(ctx context.Context, cfg Config) error {
	a, err := New(ctx, cfg)
	if err != nil {
		return err
	}
	defer a.Close()
	a.log.Info("agent runs", "control", a.ControlAddr(), "data", a.cfg.addrs(), "ports", a.dataPorts)
	<-ctx.Done()
	return nil
}

// New starts an agent. Close stops it.
func New(ctx context.Context, cfg Config) (*Agent, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("agent configuration: %w", err)
	}
	a := &Agent{
		cfg: cfg, log: cfg.Log, epoch: time.Now(),
		peers: newPeers(), sessions: make(map[agentapi.SessionID]*session), probing: make(map[netip.Addr]bool),
		awaitingClient: make(map[netip.AddrPort]*session), bufferPools: make(map[int]*buffers),
		warming: make(chan struct{}, 1),
	}
	a.drift = drift.NewCounts(a.log)
	a.acceptor = newAcceptor(a)
	a.pacers = newPacers(a)
	a.ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	a.metrics = newMetrics(a)
	a.total.a = a
	a.server = a.newServer()
	a.warm = newWarmPool(&a.cfg)
	a.ports = newPorts(a.cfg.SessionPorts)
	a.routes = newRoutes()
	a.sizes = newSessionSizes()
	a.starts = newStartRoutes(a)
	if err := a.start(); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// start opens the agent's sockets and files, and starts its goroutines.
func (a *Agent) start() error {
	var err error
	if a.controlTLS, a.dataTLS, err = a.cfg.loadTLS(); err != nil {
		return err
	}
	if a.pipes, err = newPipePool(a.cfg.PipeBytes, keepPipes); err != nil {
		return err
	}
	a.probe()
	a.macs = map[netip.Addr]string{}
	for _, addr := range a.cfg.addrs() {
		a.macs[addr] = interfaceMAC(addr)
	}
	if err := a.listen(); err != nil {
		return err
	}
	if err := a.declare(); err != nil {
		return err
	}
	for _, ln := range a.data {
		a.wg.Go(func() { a.acceptor.run(ln) })
	}
	for _, w := range a.resets {
		a.wg.Go(func() { a.serveResets(w) })
	}
	if a.cfg.Memory != "" {
		if err := a.pacers.load(a.cfg.Memory); err != nil { // not overwritten: it may hold other data
			a.warn("what paths carry is not remembered: " + err.Error())
		} else {
			a.wg.Go(a.savePaths)
		}
	}
	a.wg.Go(a.runPeriodic)
	a.wg.Go(func() {
		if err := a.server.Serve(a.control, a.controlTLS); err != nil {
			a.log.Error("no controller is answered any more", "error", err)
		}
	})
	return nil
}

// probe finds out which functions of the kernel the agent may use, and records a warning for each
// that is missing.
func (a *Agent) probe() {
	force := mayForceBuffers()
	a.buffer = a.cfg.BufferBytes
	if !force {
		a.buffer = tunedBuffer()
		if a.buffer < a.cfg.BufferBytes {
			a.warn(fmt.Sprintf("socket buffers reach %s, %s are wanted: give the agent CAP_NET_ADMIN, or set net.ipv4.tcp_rmem and net.ipv4.tcp_wmem to \"4096 131072 %d\"",
				units.FormatSize(int64(a.buffer)), units.FormatSize(int64(a.cfg.BufferBytes)), a.cfg.BufferBytes))
		}
	}
	a.congestion = findCongestion()
	if a.congestion.long != "bbr" {
		a.warn("no bbr: load the module tcp_bbr, or permit it by net.ipv4.tcp_allowed_congestion_control")
	}
	if err := raiseFiles(); err != nil {
		a.warn("few files: " + err.Error())
	}
	if err := checkPortOverlap(a.cfg.SessionPorts); err != nil {
		a.warn(err.Error())
	}
	for _, addr := range a.cfg.addrs() {
		w, err := watchResets(addr.Is6())
		if err != nil {
			a.warn(fmt.Sprintf("a client that gives up during set-up is noticed after %v: give the agent CAP_NET_RAW (%v)", a.cfg.PrepareTimeout, err))
			break
		}
		a.resets = append(a.resets, w)
	}
	a.transports = transports{&tcpTransport{buffer: a.cfg.BufferBytes, lowat: a.cfg.NotSentLowat, force: force, start: a.congestion.local}}
}

func (a *Agent) warn(text string) {
	a.warnings = append(a.warnings, text)
	a.log.Warn(text)
}

// declare sets up what the agent needs in the kernel, and keeps it so. It does so once the agent has
// its ports: an agent that is started twice by mistake must not remove what the first one has set
// up.
func (a *Agent) declare() error {
	for _, addr := range a.cfg.addrs() {
		if err := a.starts.open(addr); err != nil {
			a.warn("connections between agents start slowly: give the agent CAP_NET_ADMIN (" + err.Error() + ")")
		}
	}
	things := a.starts.things()
	declared, err := keepCongestionState()
	if err != nil {
		a.warn("idle connections lose their speed: set net.ipv4.tcp_slow_start_after_idle=0 (" + err.Error() + ")")
	}
	if declared {
		things = append(things, drift.Sysctl(slowStartAfterIdle, "0"))
	}
	keeper, err := drift.Open(a.drift, things...)
	if err != nil {
		return err
	}
	a.wg.Go(func() {
		if err := keeper.Run(a.ctx); err != nil {
			a.log.Error("what other programs change in the kernel is no longer restored", "error", err)
		}
	})
	return nil
}

// listen opens the control port and the data ports.
func (a *Agent) listen() error {
	t, _ := a.transports.byName(a.cfg.Transport)
	for _, port := range a.cfg.DataPorts {
		// A port that the kernel chooses for the first address is used for the second, too.
		for _, addr := range a.cfg.addrs() {
			ln, err := t.Listen(a.ctx, netip.AddrPortFrom(addr, port))
			if err != nil {
				return err
			}
			a.data = append(a.data, ln)
			port = ln.Addr().(*net.TCPAddr).AddrPort().Port()
		}
		a.dataPorts = append(a.dataPorts, port)
	}
	ln, err := net.Listen("tcp", a.cfg.Listen)
	if err != nil {
		return fmt.Errorf("control address: %w", err)
	}
	a.control = ln
	return nil
}

// ControlAddr returns the address of the control server.
func (a *Agent) ControlAddr() netip.AddrPort { return a.control.Addr().(*net.TCPAddr).AddrPort() }

// DataPorts returns the ports on which peers are accepted.
func (a *Agent) DataPorts() []uint16 { return a.dataPorts }

// Close ends every session with RST and waits until all goroutines have stopped.
func (a *Agent) Close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	for _, s := range a.list() {
		s.finish(agentapi.ReasonShutdown, "the agent was stopped", wire.CauseAgent)
	}
	for _, ln := range a.data {
		_ = ln.Close()
	}
	a.warm.close()
	a.acceptor.close()
	for _, w := range a.resets {
		_ = w.socket.Close()
	}
	a.server.Close()
	if a.control != nil {
		_ = a.control.Close()
	}
	a.cancel()
	a.wg.Wait()
	a.starts.close()
	if a.pipes != nil {
		a.pipes.close()
	}
}

// runPeriodic does the agent's periodic work until the agent closes.
func (a *Agent) runPeriodic() {
	t := time.NewTicker(a.cfg.Beat / 2)
	defer t.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-second.C:
			a.warm.expire(time.Now())
			a.starts.expire(time.Now())
		case <-t.C:
			now := a.now()
			for _, s := range a.list() {
				s.tick(now)
			}
		}
	}
}

// now returns the time on the agent's clock, in monotonic nanoseconds. It is never 0.
func (a *Agent) now() int64 { return int64(time.Since(a.epoch)) + 1 }

// session returns the session with the given id, or nil.
func (a *Agent) session(id agentapi.SessionID) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sessions[id]
}

// list returns all sessions.
func (a *Agent) list() []*session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.AppendSeq(make([]*session, 0, len(a.sessions)), maps.Values(a.sessions))
}

// register adds s to the agent's sessions, or returns the reason for refusing it.
func (a *Agent) register(s *session) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed || a.server.Draining():
		return &control.Problem{Title: "agent is draining", Code: control.CodeDraining}
	case a.sessions[s.req.ID] != nil:
		return &control.Problem{Title: "session exists", Code: control.CodeDuplicate, Field: "id", Detail: s.req.ID.String()}
	case len(a.sessions) >= a.cfg.MaxSessions:
		return &control.Problem{Title: "agent is full", Code: control.CodeFull, Detail: fmt.Sprintf("%d sessions", a.cfg.MaxSessions)}
	}
	a.sessions[s.req.ID] = s
	a.wg.Add(1) // until forget has released everything, which Close waits for
	if s.role == roleAcceptor {
		a.acceptor.countPeer(s.req.Peer.Addr, 1)
	}
	return nil
}

// forget removes s from the agent's sessions and records its end. Once all goroutines of s have
// stopped, forget releases the memory and the port of s.
func (a *Agent) forget(s *session) {
	s.mu.Lock()
	at := netip.AddrPortFrom(s.own, s.port)
	s.mu.Unlock()
	a.mu.Lock()
	delete(a.sessions, s.req.ID)
	if a.awaitingClient[at] == s {
		delete(a.awaitingClient, at)
	}
	a.mu.Unlock()
	if s.role == roleAcceptor {
		a.acceptor.countPeer(s.req.Peer.Addr, -1)
	}
	a.metrics.ended(s)
	a.server.Record(s.record())
	go func() {
		defer a.wg.Done()
		s.dial.dropEarly()
		s.wg.Wait()
		s.out.drop()
		s.in.drop()
		s.freePort()
	}()
}

// buffersOf returns the buffers of the given size. All sessions in copy mode with chunks of that
// size share them.
func (a *Agent) buffersOf(size int) *buffers {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.bufferPools[size]
	if b == nil {
		b = newBuffers(size)
		a.bufferPools[size] = b
	}
	return b
}
