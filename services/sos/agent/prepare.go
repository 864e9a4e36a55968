package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// maxContext bounds the context that a controller may attach to a session, in bytes.
const maxContext = 16 << 10

// maxPaths bounds the paths of a session.
const maxPaths = 64

// checkRequest returns an error if a request is invalid. It has no other effect.
func (a *Agent) checkRequest(r *agentapi.PrepareRequest) error {
	addrs := []struct {
		field string
		addr  netip.Addr
	}{{"client", r.Client.Addr()}, {"server", r.Server.Addr()}, {"peer.addr", r.Peer.Addr}}
	for _, x := range addrs {
		if err := a.checkAddr(x.field, x.addr); err != nil {
			return err
		}
		if x.addr.Is4() != r.Client.Addr().Is4() {
			return control.BadRequest(x.field, "%v: the client's address is %v, of the other family", x.addr, r.Client.Addr())
		}
	}
	switch {
	case r.ID.IsZero():
		return control.BadRequest("id", "missing: want 32 hex digits, not all 0")
	case r.Key.IsZero():
		return control.BadRequest("key", "missing: want 32 bytes in base64, not all 0")
	case r.Role != agentapi.RoleClient && r.Role != agentapi.RoleServer:
		return control.BadRequest("role", "%q: want %q or %q", r.Role, agentapi.RoleClient, agentapi.RoleServer)
	case r.Client.Port() == 0:
		return control.BadRequest("client", "port 0: want 1 to 65535")
	case r.Server.Port() == 0:
		return control.BadRequest("server", "port 0: want 1 to 65535")
	case r.Role == agentapi.RoleClient && len(r.Peer.DataPorts) == 0:
		return control.BadRequest("peer.data_ports", "missing: the client's agent dials them")
	case len(r.Peer.DataPorts) > 64 || slices.Contains(r.Peer.DataPorts, 0):
		return control.BadRequest("peer.data_ports", "%v: want at most 64 ports, none 0", r.Peer.DataPorts)
	case r.Idle < 0 || time.Duration(r.Idle) > 7*24*time.Hour:
		return control.BadRequest("idle", "%v: want 0s to 168h", r.Idle)
	case r.PeerTimeout < 0 || time.Duration(r.PeerTimeout) > 7*24*time.Hour:
		return control.BadRequest("peer_timeout", "%v: want 0s to 168h", r.PeerTimeout)
	case len(r.Context) > maxContext:
		return control.BadRequest("context", "%d bytes: want at most %d", len(r.Context), maxContext)
	}
	return cmp.Or(a.checkPeerAddr("peer.addr", r.Peer.Addr), checkMarks(r.Marks), checkPaths(r.Paths), a.checkParams(&r.Params))
}

// checkAddr returns an error if the agent cannot exchange packets with an address.
func (a *Agent) checkAddr(field string, addr netip.Addr) error {
	switch {
	case !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() || addr.Zone() != "":
		return control.BadRequest(field, "%v: want a unicast address without zone", addr)
	case !a.cfg.addrFor(addr).IsValid():
		return control.BadRequest(field, "%v: the agent's data address is %v, of the other family", addr, a.cfg.DataAddr)
	}
	return nil
}

// checkPeerAddr returns an error if an address cannot be another agent's.
func (a *Agent) checkPeerAddr(field string, addr netip.Addr) error {
	if slices.Contains(a.cfg.addrs(), addr) {
		return control.BadRequest(field, "%v is this agent itself", addr)
	}
	return a.checkAddr(field, addr)
}

func checkPaths(paths []agentapi.Path) error {
	if len(paths) > maxPaths {
		return control.BadRequest("paths", "%d of them: want at most %d", len(paths), maxPaths)
	}
	for i, p := range paths {
		switch field := fmt.Sprintf("paths[%d]", i); {
		case p.Rate > agentapi.MaxPathRate:
			return control.BadRequest(field+".rate", "%d: want at most %.0f", p.Rate, agentapi.MaxPathRate)
		case p.RTT < 0 || time.Duration(p.RTT) > time.Minute:
			return control.BadRequest(field+".rtt", "%v: want 0s to 1m", p.RTT)
		}
	}
	return nil
}

func (a *Agent) checkParams(p *agentapi.Params) error {
	within := func(field string, v, low, high int) error {
		if v != 0 && (v < low || v > high) {
			return control.BadRequest("params."+field, "%d: want %d to %d, or 0 for the agent's default", v, low, high)
		}
		return nil
	}
	if err := errors.Join(
		within("connections", p.Connections, 1, a.cfg.MaxConnections),
		within("chunk_bytes", p.ChunkBytes, 1<<10, wire.MaxChunk),
		within("queue", p.Queue, 1, 1<<16),
		within("paths", p.Paths, 1, maxPaths),
		within("weight", p.Weight, 1, agentapi.MaxWeight),
	); err != nil {
		return err
	}
	if _, ok := a.transports.byName(p.Transport); p.Transport != "" && !ok {
		return control.BadRequest("params.transport", "%q: want one of %q", p.Transport, a.transports.names())
	}
	if cc := p.CongestionControl; cc != "" && !slices.Contains(congestionControls(), cc) {
		return control.BadRequest("params.congestion_control", "%q: want one of %q", cc, congestionControls())
	}
	if !p.Share.Valid() {
		return control.BadRequest("params.share", "%q: want %s, %s or %s", p.Share, agentapi.SharePolite, agentapi.ShareEqual, agentapi.ShareAll)
	}
	if !p.Fairness.Valid() {
		return control.BadRequest("params.fairness", "%q: want %s or %s", p.Fairness, agentapi.FairnessSession, agentapi.FairnessClient)
	}
	if p.TLS && a.dataTLS == nil {
		return control.BadRequest("params.tls", "the agent has no certificate for data connections")
	}
	return nil
}

// prepare creates a session and binds the ports that it needs.
func (a *Agent) prepare(req agentapi.PrepareRequest) (agentapi.PrepareReply, error) {
	if err := a.checkRequest(&req); err != nil {
		return agentapi.PrepareReply{}, err
	}
	reply := agentapi.PrepareReply{Addr: a.cfg.addrFor(req.Client.Addr()), DataPorts: a.dataPorts}
	own, other := req.Client.Addr(), req.Server.Addr()
	if req.Role == agentapi.RoleServer {
		own, other = other, own
	}
	toPeer, err := a.routes.lookup(req.Peer.Addr)
	if err != nil {
		return reply, &control.Problem{Title: "no route to the peer", Code: control.CodeNoPeer, Detail: err.Error()}
	}
	toEnd, err := a.routes.lookup(own)
	if err != nil {
		return reply, &control.Problem{Title: "no route to the end host", Code: control.CodeNoRoute, Detail: err.Error()}
	}
	reply.MAC, reply.OnLink, reply.PeerOnLink = a.macs[reply.Addr], toEnd.onLink, toPeer.onLink
	reply.NextHopEndMAC = a.routes.mac(toEnd)
	if far, err := a.routes.lookup(other); err == nil {
		reply.NextHopMAC = a.routes.mac(far)
	}
	s := newSession(a, req, a.cfg.params(req.Params))
	if err := a.register(s); err != nil {
		s.cancel()
		return reply, err
	}
	a.setInitialWindow(reply.Addr, &req, toPeer, s.params)
	if reply.Port, err = s.bind(); err == nil {
		err = s.marks.markEnds()
	}
	if err != nil {
		s.finish(agentapi.ReasonFailed, err.Error(), 0)
		return reply, &control.Problem{Title: "no port", Code: control.CodeFull, Detail: err.Error()}
	}
	s.mu.Lock()
	s.reply = reply
	s.mu.Unlock()
	if s.role == roleDialer {
		a.watchClient(s, reply.Port)
		s.dial.dialEarly()
	}
	return reply, nil
}

// paths returns the pacers of the paths that a session's connections to its peer take, and passes
// the declared rates to them.
func (a *Agent) paths(req *agentapi.PrepareRequest) []*pacer {
	ports := req.Peer.DataPorts
	if req.Role == agentapi.RoleServer {
		ports = a.dataPorts
	}
	var all []*pacer
	for i, port := range ports[:min(len(ports), max(req.Params.Paths, len(req.Paths), 1))] {
		p := a.pacers.of(netip.AddrPortFrom(req.Peer.Addr, port))
		if i < len(req.Paths) {
			p.setDeclared(req.Paths[i])
		}
		all = append(all, p)
	}
	return all
}

// setInitialWindow makes connections between the agent and a session's peer start at the known rate
// of their paths. Connections that are not paced start with the kernel's own window.
func (a *Agent) setInitialWindow(own netip.Addr, req *agentapi.PrepareRequest, via route, params agentapi.Params) {
	paths := a.paths(req)
	if params.Share == agentapi.ShareAll {
		return
	}
	segments := 0
	for _, p := range paths {
		segments = max(segments, p.initialWindow((params.Connections+len(paths)-1)/len(paths))) // connections are spread over the paths in turn
	}
	a.starts.request(own, req.Peer.Addr, via, segments)
}

// bind opens the session's port: the client's agent listens on it for the client, and the server's
// agent will dial the server from it.
func (s *session) bind() (uint16, error) {
	local := s.agent.congestion.local
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(s.own, port) }
	var r *reservation
	var ln *net.TCPListener
	port, err := s.agent.ports.bind(func(port uint16) (err error) {
		if s.role == roleAcceptor {
			r, err = reserve(at(port), local)
		} else {
			ln, err = listenFor(s.ctx, at(port), local)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended { // finish did not release the port, because the session had none yet
		if r != nil {
			r.close()
		} else {
			_ = ln.Close()
		}
		s.agent.ports.give(port)
		return 0, errOver
	}
	s.reserved, s.listener, s.port = r, ln, port
	if ln != nil {
		s.wg.Go(func() { s.awaitClient(ln) }) // under mu, for the reason given in spawn
	}
	return port, nil
}

// awaitClient accepts the announced client, and resets connections of any other host.
func (s *session) awaitClient(ln *net.TCPListener) {
	defer dropIncoming(ln)
	retrying := listen.New(ln, func(err error) {
		s.agent.warnLimit.Warn(s.agent.log, "cannot accept a session's client for now", "session", s.req.ID, "error", err)
	})
	for {
		nc, err := retrying.Accept()
		if err != nil {
			return // the session is over
		}
		c := nc.(*net.TCPConn)
		from := c.RemoteAddr().(*net.TCPAddr).AddrPort()
		if netip.AddrPortFrom(from.Addr().Unmap(), from.Port()) != s.req.Client {
			s.agent.metrics.rejected.Inc()
			s.agent.warnLimit.Warn(s.agent.log, "connection from a stranger on a session's port", "session", s.req.ID, "from", from)
			resetNow(c)
			continue
		}
		e, err := newEndHost(c, s.agent)
		if err != nil {
			resetNow(c)
			s.fail(err)
			return
		}
		if s.setEndHost(e) {
			s.dial.start()
		}
		return
	}
}

// commit dials the server, at the server's agent. At the client's agent, it opens the connections
// to the peer and waits for the first of them. It may be called once.
func (s *session) commit(ctx context.Context) error {
	s.mu.Lock()
	if s.phase != agentapi.PhasePrepared && s.phase != agentapi.PhaseRunning {
		s.mu.Unlock()
		return &control.Problem{Title: "session is committed", Code: control.CodeDuplicate, Field: "id"}
	}
	if s.phase == agentapi.PhasePrepared {
		s.phase, s.since = agentapi.PhaseCommitted, s.agent.now()
	}
	reserved := s.reserved
	s.mu.Unlock()
	if s.role == roleDialer {
		return s.commitClient(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.agent.cfg.DialTimeout, unix.ETIMEDOUT)
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel)
	defer stop()
	c, err := reserved.dial(ctx, s.req.Server)
	if err != nil {
		p := dialProblem(s.req.Server, err)
		s.finish(agentapi.ReasonRefused, p.Detail, wire.CauseAbort)
		return p
	}
	e, err := newEndHost(c, s.agent)
	if err != nil {
		resetNow(c)
		s.fail(err)
		return err
	}
	if !s.setEndHost(e) {
		return &control.Problem{Title: "session is over", Code: control.CodeNotFound}
	}
	return nil
}

// commitClient opens the connections to the peer, and waits for the first. If none can be
// established, the controller has to learn that before it releases the client's SYN.
func (s *session) commitClient(ctx context.Context) error {
	s.dial.start()
	ctx, cancel := context.WithTimeout(ctx, s.agent.cfg.OpeningTimeout)
	defer cancel()
	if err := s.dial.wait(ctx); err != nil {
		s.finish(agentapi.ReasonPeerLost, err.Error(), wire.CauseAbort)
		return &control.Problem{Title: "no connection to the peer", Code: control.CodeNoPeer, Detail: err.Error()}
	}
	return nil
}

// dialProblem converts the error of a dial to the problem that the controller gets.
func dialProblem(server netip.AddrPort, err error) *control.Problem {
	p := &control.Problem{Title: "server does not take the connection", Detail: fmt.Sprintf("%v: %v", server, err)}
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET):
		p.Code = control.CodeRefused
	case errors.Is(err, unix.ETIMEDOUT), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		p.Code = control.CodeTimeout
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		p.Code = control.CodeUnreachable
	default:
		p.Code = control.CodeInternal
	}
	return p
}
