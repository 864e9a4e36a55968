package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// newSwitch returns the session for a new connection.
func newSwitch(n *Network, conn net.Conn) *Switch {
	s := &Switch{
		n: n, conn: conn, since: time.Now(), unregistered: make(chan struct{}), countersWanted: newSignal(), announced: make(chan struct{}),
		flows:      ledger.NewFlows(n.cfg.ForwardRules, n.forwarding.hash, n.cfg.Generation),
		ports:      ports{limit: n.cfg.MaxPorts, byNumber: map[uint32]openflow.Port{}},
		ruleCounts: ruleCounts{reading: make(chan struct{}, 1)},
		refusals:   refusedFlows{owner: n.forwarding.hash, limit: n.cfg.ForwardRules},
		comparer:   comparer{interval: n.cfg.CompareInterval, slots: n.comparisons, wanted: newSignal()},
	}
	s.held.limit = n.cfg.HoldLimit
	s.role.Store(uint32(openflow.RoleEqual))
	s.slot.semaphore = n.readers
	s.ch = newChannel(conn, &n.cfg, n.quota, &s.logLimiter, s.since)
	s.ch.beforeWait = s.slot.release
	s.keepalive.ch, s.keepalive.timeout = s.ch, n.cfg.EchoTimeout
	return s
}

// serve runs the session from the handshake to its end. It is the switch's goroutine: it handles
// everything the switch sends, in order.
func (s *Switch) serve(ctx context.Context, pending *pendingConn) {
	defer func() { _ = s.conn.Close() }()
	defer s.ch.account.close()
	defer pending.release()
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()
	admission := &s.n.admission
	if err := admission.authenticate(ctx, s.conn, pending); err != nil {
		if ctx.Err() == nil {
			admission.refusalLog.Warn(admission.log, "connection refused", "from", s.conn.RemoteAddr(), "error", err)
		}
		return
	}
	r := openflow.NewReader(s.conn)
	r.Limit(maxHandshakeMessage)
	g := handshake{cfg: &s.n.cfg, conn: s.conn}
	if err := g.exchange(r); err != nil {
		if ctx.Err() == nil {
			admission.refusalLog.Warn(admission.log, "connection refused", "from", s.conn.RemoteAddr(), "error", err)
		}
		return
	}
	r.Limit(openflow.MaxMessage)
	s.features, s.dpid, s.ch.dpid = g.features, g.features.DatapathID, g.features.DatapathID
	s.ch.xid.Store(g.xid)
	if err := admission.delayReconnect(ctx, s.dpid, s.conn.RemoteAddr()); err != nil {
		admission.logRefusal(s, err)
		return
	}
	pending.release()
	began := time.Now()
	if err := admission.admit(s.dpid); err != nil {
		admission.logRefusal(s, err)
		return
	}
	defer admission.release()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer s.close()
	defer func() { // before unregistering, or a switch that reconnects at once would not be delayed
		admission.reconnects.sessionEnded(s.dpid, hostOf(s.conn.RemoteAddr()), time.Since(began), time.Now())
	}()
	wg.Go(func() { s.ch.out.run(s.ch.done) })
	if err := s.n.switches.register(ctx, s); err != nil {
		admission.logRefusal(s, err)
		return
	}
	wg.Go(func() { s.setUp(ctx) })
	err := s.read(r)
	if ctx.Err() == nil {
		admission.logSession(s.dpid, "switch left", "reason", s.ch.endReason(err))
	}
}

// echoReply returns the answer to an echo request.
func echoReply(m []byte) *openflow.EchoReply { return &openflow.EchoReply{Data: m[8:]} }

const (
	// batchTime is how long a batch of input is handled before its output is written and other
	// switches get their turn. batchStep is the number of messages after which the time is
	// checked.
	batchTime = time.Millisecond
	batchStep = 8
)

// read handles input until the connection ends. The output that a batch of input causes is written
// at the end of the batch, to this switch and to all others concerned.
func (s *Switch) read(r *openflow.Reader) error {
	defer s.flushPending() // the output of the batch that ended with the connection
	defer s.slot.release()
	for {
		m, err := r.Next()
		if err != nil {
			return err
		}
		if s.hasPeers() && s.share.busy(time.Now(), processors) {
			s.slot.acquire()
		}
		now := time.Now()
		s.ch.lastReceived.Store(now.UnixNano())
		s.pkt.At = now
		count := 0
		for {
			if err := s.handle(m); err != nil {
				return err
			}
			if count++; !r.Buffered() || count%batchStep == 0 && time.Since(now) >= batchTime {
				break
			}
			if m, err = r.Next(); err != nil {
				return err
			}
		}
		s.flushPending()
		s.slot.release()
		if r.Buffered() {
			runtime.Gosched()
		}
		s.pauseReading(s.share.spend(now, time.Now(), processors))
	}
}

// hasPeers reports whether other switches are connected.
func (s *Switch) hasPeers() bool { return s.n.admission.sessions.Load() > 1 }

// pauseReading waits for d before more is read from the switch, unless no other switch is
// connected.
func (s *Switch) pauseReading(d time.Duration) {
	if d <= 0 || !s.hasPeers() {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ch.done:
	}
}

// flushPending writes the output that this batch of input has caused, to this switch and to all
// others concerned.
func (s *Switch) flushPending() {
	for i, o := range s.toFlush {
		o.flush()
		s.toFlush[i] = nil
	}
	s.toFlush = s.toFlush[:0]
	s.ch.out.flush()
}

// flushLater marks the output of another switch to be flushed at the end of the batch.
func (s *Switch) flushLater(o *output) {
	if o == s.ch.out {
		return
	}
	for _, t := range s.toFlush {
		if t == o {
			return
		}
	}
	s.toFlush = append(s.toFlush, o)
}

// handle processes one message. It returns an error only if the session cannot go on.
func (s *Switch) handle(m []byte) error {
	if m[0] != openflow.Version {
		return fmt.Errorf("message of version %#02x in a session of OpenFlow 1.3", m[0])
	}
	s.counters.received.add(m)
	switch openflow.MsgType(m[1]) {
	case openflow.TypePacketIn:
		s.packetIn(m)
	case openflow.TypeEchoRequest:
		return s.answerEcho(m)
	case openflow.TypeBarrierReply:
		if !s.ch.barrierReply(openflow.XID(m)) {
			s.ch.reply(m, s.pkt.At)
		}
	case openflow.TypeError:
		s.deliverError(m)
	case openflow.TypeFlowRemoved:
		s.flowRemoved(m)
	case openflow.TypePortStatus:
		s.portStatus(m)
	case openflow.TypeEchoReply, openflow.TypeMultipartReply, openflow.TypeRoleReply, openflow.TypeExperimenter,
		openflow.TypeFeaturesReply, openflow.TypeGetConfigReply, openflow.TypeGetAsyncReply, openflow.TypeQueueGetReply:
		s.ch.reply(m, s.pkt.At)
	case openflow.TypeHello:
	default:
		s.malformed(fmt.Errorf("switches must not send %v to a controller", openflow.MsgType(m[1])))
	}
	if s.counters.malformed.Load() > maxMalformed {
		return errors.New("too many malformed messages")
	}
	return nil
}

// answerEcho answers an echo request. If the switch has not read the earlier answers, answerEcho
// waits until it does, so that nothing more is read from the switch meanwhile.
func (s *Switch) answerEcho(m []byte) error {
	for {
		if queued, err := s.ch.out.answerEcho(m); queued || err != nil {
			return err
		}
		s.flushPending()
		s.slot.release()
		timer := time.NewTimer(s.n.cfg.EchoTimeout)
		select {
		case <-s.ch.out.answered:
			timer.Stop()
		case <-s.ch.account.evicted:
			timer.Stop()
			return s.ch.account.quota.errFull()
		case <-timer.C:
			return fmt.Errorf("it has not read the answers to its echo requests for %v", s.n.cfg.EchoTimeout)
		}
	}
}

// deliverError passes an error message of the switch to the request or batch that caused it, or
// logs it.
func (s *Switch) deliverError(m []byte) {
	e := new(openflow.Error)
	if err := e.Decode(bytes.Clone(m)); err != nil {
		s.malformed(err)
		return
	}
	if !s.ch.deliverError(openflow.XID(m), e, s.pkt.At) {
		s.refusals.note(e.Data)
		s.logLimiter.Warn(s.n.cfg.Log, "switch refused a message", "switch", s.dpid, "error", e)
	}
}

// maxMalformed is the number of malformed messages that a session survives.
const maxMalformed = 1000

// malformed counts and logs a message that could not be read.
func (s *Switch) malformed(err error) {
	s.counters.malformed.Add(1)
	s.logLimiter.Warn(s.n.cfg.Log, "malformed message from switch", "switch", s.dpid, "error", err)
}

// close ends the session.
func (s *Switch) close() {
	close(s.ch.done)
	_ = s.conn.Close()
	s.held.dropAll()
	s.unregister()
}

// unregister removes the session from the network. It announces the end of this session before the
// switch's next session can be announced.
func (s *Switch) unregister() {
	registered, wasUp := s.n.switches.markDown(s)
	if !registered {
		return
	}
	if wasUp {
		s.n.admission.knownAddrs.add(hostOf(s.RemoteAddr()), time.Now())
		<-s.announced
		s.n.dispatcher.switchDown(s)
	}
	s.n.owners.forgetEvery(s.dpid)
	s.n.switches.remove(s)
}

// flowRemoved handles a rule that the switch has removed.
func (s *Switch) flowRemoved(m []byte) {
	var r openflow.FlowRemoved
	if err := r.Decode(m); err != nil {
		s.malformed(err)
		return
	}
	switch c := rule.Cookie(r.Cookie); {
	case !c.Ours():
	case c.Owner() == s.n.forwarding.hash:
		s.n.forwarding.flowGone(s, &r)
	default:
		s.n.owners.flowRemoved(s, &r, s.pkt.At)
	}
}

// portStatus updates the list of ports and announces ports that came up or went down.
func (s *Switch) portStatus(m []byte) {
	var st openflow.PortStatus
	if err := st.Decode(bytes.Clone(m)); err != nil {
		s.malformed(err)
		return
	}
	p, deleted := st.Port, st.Reason == openflow.PortDeleted
	old, known, room := s.ports.update(p, deleted)
	if !room {
		s.logLimiter.Warn(s.n.cfg.Log, "port ignored: the switch has as many as openflow.max_ports allows", "switch", s.dpid, "port", p.Number, "limit", s.n.cfg.MaxPorts)
		return
	}
	wasUp, isUp := known && old.Up(), !deleted && p.Up()
	if !s.up.Load() || p.Number > openflow.PortMax {
		return
	}
	at := PortRef{Switch: s.dpid, Port: p.Number}
	switch {
	case isUp && (!wasUp || old.MAC != p.MAC):
		s.n.dispatcher.portUp(at, p)
	case wasUp && !isUp:
		s.n.dispatcher.portDown(at)
	}
}
