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

// newSwitch makes the session on a new connection.
func newSwitch(n *Network, conn net.Conn) *Switch {
	s := &Switch{
		n: n, conn: conn, since: time.Now(), gone: make(chan struct{}), doubted: newSignal(), announced: make(chan struct{}),
		flows:    ledger.NewFlows(n.cfg.ForwardRules, n.forwarding.hash, n.cfg.Generation),
		ports:    ports{most: n.cfg.MaxPorts, byNumber: map[uint32]openflow.Port{}},
		counts:   ruleCounts{reading: make(chan struct{}, 1)},
		refusals: refusedFlows{owner: n.forwarding.hash, most: n.cfg.ForwardRules},
	}
	s.held.limit = n.cfg.HoldLimit
	s.role.Store(uint32(openflow.RoleEqual))
	s.turn.of = n.turns
	s.ch = newChannel(conn, &n.cfg, n.quota, &s.limiter, s.since)
	s.ch.waits = s.turn.leave
	s.pulse.ch, s.pulse.timeout = s.ch, n.cfg.EchoTimeout
	return s
}

// serve runs the session, from hello to the end. It is the switch's goroutine: everything
// that comes in is handled here, in order.
func (s *Switch) serve(ctx context.Context, at *seat) {
	defer func() { _ = s.conn.Close() }()
	defer s.ch.account.close()
	defer at.leave()
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()
	admission := &s.n.admission
	if err := admission.prove(ctx, s.conn, at); err != nil {
		if ctx.Err() == nil {
			admission.greetings.Warn(admission.log, "connection refused", "from", s.conn.RemoteAddr(), "error", err)
		}
		return
	}
	r := openflow.NewReader(s.conn)
	r.Limit(maxGreeting)
	g := greeting{cfg: &s.n.cfg, conn: s.conn}
	if err := g.exchange(r); err != nil {
		if ctx.Err() == nil {
			admission.greetings.Warn(admission.log, "connection refused", "from", s.conn.RemoteAddr(), "error", err)
		}
		return
	}
	r.Limit(openflow.MaxMessage)
	s.features, s.dpid, s.ch.dpid = g.features, g.features.DatapathID, g.features.DatapathID
	s.ch.xid.Store(g.xid)
	if err := admission.hold(ctx, s.dpid, s.conn.RemoteAddr()); err != nil {
		admission.refuse(s, err)
		return
	}
	at.leave()
	began := time.Now()
	if err := admission.admit(s.dpid); err != nil {
		admission.refuse(s, err)
		return
	}
	defer admission.release()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer s.end()
	defer func() { // before the end is known, or who comes again at once would not wait
		admission.reconnects.ended(s.dpid, hostOf(s.conn.RemoteAddr()), time.Since(began), time.Now())
	}()
	wg.Go(func() { s.ch.out.run(s.ch.done) })
	if err := s.n.switches.register(ctx, s); err != nil {
		admission.refuse(s, err)
		return
	}
	wg.Go(func() { s.setUp(ctx) })
	err := s.read(r)
	if ctx.Err() == nil {
		admission.tell(s.dpid, "switch left", "reason", s.ch.reason(err))
	}
}

func echoReply(m []byte) *openflow.EchoReply { return &openflow.EchoReply{Data: m[8:]} }

const (
	// batchTime is how long a batch of input is handled before what it causes is written,
	// and others have their turn; batchStep is after how many messages that is looked at.
	batchTime = time.Millisecond
	batchStep = 8
)

// read handles input until the connection ends. Everything that one batch of
// input causes is written at its end: to this switch, and to the others that it
// concerned.
func (s *Switch) read(r *openflow.Reader) error {
	defer s.flushTouched() // what a batch has caused that ends with the connection
	defer s.turn.leave()
	for {
		m, err := r.Next()
		if err != nil {
			return err
		}
		if s.others() && s.share.busy(time.Now(), processors) {
			s.turn.take()
		}
		now := time.Now()
		s.ch.heard.Store(now.UnixNano())
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
		s.flushTouched()
		s.turn.leave()
		if r.Buffered() {
			runtime.Gosched()
		}
		s.giveWay(s.share.spend(now, time.Now(), processors))
	}
}

// others reports whether there are other switches.
func (s *Switch) others() bool { return s.n.admission.sessions.Load() > 1 }

// giveWay has nothing read from the switch for a time, if there are others.
func (s *Switch) giveWay(d time.Duration) {
	if d <= 0 || !s.others() {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ch.done:
	}
}

func (s *Switch) flushTouched() {
	for i, o := range s.touched {
		o.flush()
		s.touched[i] = nil
	}
	s.touched = s.touched[:0]
	s.ch.out.flush()
}

// touch has the output of another switch flushed at the end of the batch.
func (s *Switch) touch(o *output) {
	if o == s.ch.out {
		return
	}
	for _, t := range s.touched {
		if t == o {
			return
		}
	}
	s.touched = append(s.touched, o)
}

// handle acts on one message. Only what makes the stream unusable is an error.
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
		if !s.ch.barrier(openflow.XID(m)) {
			s.ch.reply(m, s.pkt.At)
		}
	case openflow.TypeError:
		s.refused(m)
	case openflow.TypeFlowRemoved:
		s.flowRemoved(m)
	case openflow.TypePortStatus:
		s.portStatus(m)
	case openflow.TypeEchoReply, openflow.TypeMultipartReply, openflow.TypeRoleReply, openflow.TypeExperimenter,
		openflow.TypeFeaturesReply, openflow.TypeGetConfigReply, openflow.TypeGetAsyncReply, openflow.TypeQueueGetReply:
		s.ch.reply(m, s.pkt.At)
	case openflow.TypeHello:
	default:
		s.malformed(fmt.Errorf("%v is no message for a controller", openflow.MsgType(m[1])))
	}
	if s.counters.garbage.Load() > maxMalformed {
		return errors.New("too many malformed messages")
	}
	return nil
}

// answerEcho answers a request for a sign of life. While the switch does not read the answers
// to the requests before it, it waits, and so does whatever else the switch sends.
func (s *Switch) answerEcho(m []byte) error {
	for {
		if queued, err := s.ch.out.answerEcho(m); queued || err != nil {
			return err
		}
		s.flushTouched()
		s.turn.leave()
		timer := time.NewTimer(s.n.cfg.EchoTimeout)
		select {
		case <-s.ch.out.answered:
			timer.Stop()
		case <-s.ch.account.evicted:
			timer.Stop()
			return s.ch.account.quota.errFull()
		case <-timer.C:
			return fmt.Errorf("it has read no answer to its echo requests for %v", s.n.cfg.EchoTimeout)
		}
	}
}

// refused acts on an error of the switch.
func (s *Switch) refused(m []byte) {
	e := new(openflow.Error)
	if err := e.Decode(bytes.Clone(m)); err != nil {
		s.malformed(err)
		return
	}
	if !s.ch.refused(openflow.XID(m), e, s.pkt.At) {
		s.refusals.note(e.Data)
		s.limiter.Warn(s.n.cfg.Log, "switch refused a message", "switch", s.dpid, "error", e)
	}
}

// maxMalformed is how many unreadable messages end a session.
const maxMalformed = 1000

func (s *Switch) malformed(err error) {
	s.counters.garbage.Add(1)
	s.limiter.Warn(s.n.cfg.Log, "malformed message from switch", "switch", s.dpid, "error", err)
}

// end is the last act of a session.
func (s *Switch) end() {
	close(s.ch.done)
	_ = s.conn.Close()
	s.held.dropAll()
	s.leave()
}

// leave takes the session out of the network. What is told of one session of a switch comes
// before what is told of the next.
func (s *Switch) leave() {
	registered, wasUp := s.n.switches.goDown(s)
	if !registered {
		return
	}
	if wasUp {
		s.n.admission.homes.note(hostOf(s.RemoteAddr()), time.Now())
		<-s.announced
		s.n.news.switchDown(s)
	}
	s.n.owners.forgetEvery(s.dpid)
	s.n.switches.remove(s)
}

// flowRemoved takes note of a rule that the switch has removed.
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
		s.n.owners.removed(s, &r, s.pkt.At)
	}
}

// portStatus keeps the list of ports and tells the network what changed.
func (s *Switch) portStatus(m []byte) {
	var st openflow.PortStatus
	if err := st.Decode(bytes.Clone(m)); err != nil {
		s.malformed(err)
		return
	}
	p, deleted := st.Port, st.Reason == openflow.PortDeleted
	old, known, room := s.ports.take(p, deleted)
	if !room {
		s.limiter.Warn(s.n.cfg.Log, "port left out: the switch has as many as openflow.max_ports allows", "switch", s.dpid, "port", p.Number, "limit", s.n.cfg.MaxPorts)
		return
	}
	wasUp, isUp := known && old.Up(), !deleted && p.Up()
	if !s.up.Load() || p.Number > openflow.PortMax {
		return
	}
	at := PortRef{Switch: s.dpid, Port: p.Number}
	switch {
	case isUp && (!wasUp || old.MAC != p.MAC):
		s.n.news.portUp(at, p)
	case wasUp && !isUp:
		s.n.news.portDown(at)
	}
}
