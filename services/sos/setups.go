package sos

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

const (
	// maxActiveSetups bounds the number of sessions that are set up at once.
	maxActiveSetups = 32
	// undoReserve is the time to undo a set-up. A first packet is held for so much longer than its
	// set-up may take.
	undoReserve = 3 * time.Second
)

// setups turns connections whose first packets are held into sessions.
type setups struct {
	*core
	sessions   *sessions
	history    *history
	pairs      *pairs
	endings    *endings
	reconciler *reconciler
	active     chan struct{} // holds a token for each set-up in progress
	costs      agents.Costs
	logLimit   *rate.Limiter // limits what is logged and published
}

// handleOffer decides whether a connection gets a session. If the first packet of a connection that
// is being set up is repeated, it drops the repetition.
func (s *setups) handleOffer(o offer, entry *Entry, p punted) network.Verdict {
	s.mu.Lock()
	if old := s.sessions.byFlow[o.flow]; old != nil && old.state != StateSetup {
		s.mu.Unlock()
		return s.handleRepeated(old, o, entry, p)
	}
	ss, verdict := s.sessions.admit(o, entry)
	limit := s.config.setupTime()
	s.mu.Unlock()
	if ss == nil {
		return verdict
	}
	held, err := p.Hold(limit + undoReserve)
	if err != nil {
		s.mu.Lock()
		s.sessions.endSetup(ss)
		s.sessions.remove(ss)
		s.sessions.refuse(ReasonHold, err.Error(), time.Now())
		s.mu.Unlock()
		return network.Continue
	}
	if !s.start(func(run context.Context) { s.run(run, ss, o, held) }) {
		_ = held.Forward()
	}
	return network.Stop
}

// run establishes a session and then releases its first packet to its agent. After a
// failure it undoes everything and forwards the packet as if SOS were not there.
func (s *setups) run(ctx context.Context, ss *session, o offer, held Held) {
	now := time.Now()
	x := &setup{setups: s, ss: ss, o: o, cfg: s.settings(), watch: stopwatch{now, now}}
	if err := x.runLimited(ctx, x.cfg.setupTime(), x.establish); err != nil {
		x.undo()
		s.mu.Lock()
		s.sessions.direct.add(ss.flow, time.Now())
		s.mu.Unlock()
		if ferr := held.Forward(); ferr != nil {
			s.warnLimit.Warn(s.log, "first packet could not be forwarded", "session", ss.id, "flow", ss.flow, "error", ferr)
		}
		s.failed(ss, err)
		return
	}
	s.mu.Lock()
	layout := ss.Layout
	s.mu.Unlock()
	s.releaseFirstPacket(ss, layout, o.at, held.Output)
	s.established(ss, x.watch.total())
}

// releaseFirstPacket sends the client's first packet to its agent. If that fails, either the switch
// is gone, or the packet was held too long and has been forwarded directly. The client then repeats
// the packet.
func (s *setups) releaseFirstPacket(ss *session, l Layout, at network.PortRef, output func([]openflow.Action) error) {
	actions, err := l.Opening(s.net.CanSet, at)
	if err == nil {
		err = output(actions)
	}
	if err != nil {
		s.log.Debug("first packet was not sent to its agent", "session", ss.id, "flow", ss.flow, "error", err)
	}
}

// established marks a session as live after its set-up.
func (s *setups) established(ss *session, total agentapi.Duration) {
	s.mu.Lock()
	s.sessions.endSetup(ss)
	ss.steps.Total = total
	ss.enter(StateLive)
	steps, rec := ss.steps, ss.record()
	ended, outdated := len(ss.ended) > 0, s.reconciler.carriesNewPort(ss) || ss.treatmentOutdated(s.treatments.Epoch())
	s.mu.Unlock()
	if outdated {
		s.wake()
	}
	s.metrics.established(steps)
	s.publish("session.established", rec)
	s.log.Debug("session is up", "session", ss.id, "flow", ss.flow, "setup", steps.Total)
	if ended {
		s.endings.windUp(ss)
	}
}

// failed records a session whose set-up failed.
func (s *setups) failed(ss *session, err error) {
	s.mu.Lock()
	s.sessions.endSetup(ss)
	s.sessions.remove(ss)
	ss.how = notEstablished + err.Error()
	s.history.finish(ss)
	now, why := time.Now(), reasonOf(err)
	s.sessions.directs.add(why, err.Error(), now)
	logged := s.logLimit.AllowN(now, 1)
	s.mu.Unlock()
	s.metrics.failed.WithLabelValues(string(why)).Inc()
	if !logged {
		return
	}
	s.publish("session.direct", map[string]any{"session": ss.id, "client": ss.flow.client, "server": ss.flow.server, "reason": why, "why": err.Error()})
	s.log.Info("connection goes directly", "flow", ss.flow, "reason", why, "why", err)
}

// maxLogged bounds the connections that go directly and are logged and published, per second and in
// a burst. In a flood, only the metrics count all of them.
const maxLogged = 20

// overTimeout is how long a first packet is held for a client that reuses a port, until the rules
// of the port's previous connection are gone. That takes longest if the end hosts are being reset.
const overTimeout = resetTimeout + 2*undoTimeout

// handleRepeated decides about a first packet of a connection that has a session. While the
// client's agent still has the session, the packet is sent to the agent. Either the client repeated
// the packet, or the client has forgotten the connection, and then the agent's machine answers as
// the server's would. If the initial sequence number is a new one, the client has reused its port.
// The packet is then also held, because the session will soon be over. A late copy of an ended
// connection's packet is dropped.
func (s *setups) handleRepeated(old *session, o offer, entry *Entry, p punted) network.Verdict {
	s.mu.Lock()
	_, done := old.ended[agentapi.RoleClient]
	live := old.state == StateLive && !done
	late := old.clientClosed() && old.isn == o.isn
	returns := (!live || old.isn != o.isn && old.isn != 0) && !late && !old.nextWaiting
	old.nextWaiting = old.nextWaiting || returns
	layout, limit := old.Layout, s.config.setupTime()
	s.mu.Unlock()
	if live && layout.ClientSide.PuntsSYN {
		s.releaseFirstPacket(old, layout, o.at, p.Output)
	}
	if returns {
		held, err := p.Hold(overTimeout + limit + undoReserve)
		if err != nil || !s.start(func(run context.Context) { s.setUpAfter(run, old, o, entry, held) }) {
			s.metrics.refused.WithLabelValues("hold").Inc()
		}
	}
	return network.Stop
}

// setUpAfter sets up a connection once the rules of the previous session with its ports are gone.
func (s *setups) setUpAfter(ctx context.Context, old *session, o offer, entry *Entry, held Held) {
	if !await(ctx, old.over, overTimeout) {
		held.Drop() // the client will repeat the packet
		return
	}
	s.mu.Lock()
	ss, verdict := s.sessions.admit(o, entry)
	s.mu.Unlock()
	switch {
	case ss != nil:
		s.run(ctx, ss, o, held)
	case verdict == network.Continue:
		if err := held.Forward(); err != nil {
			s.log.Warn("first packet could not be forwarded", "flow", o.flow, "error", err)
		}
	default:
		held.Drop() // another packet of the same connection is held
	}
}

// Held is a packet that waits for a decision, such as a *network.Held.
type Held interface {
	// Output sends the packet by the given actions.
	Output([]openflow.Action) error
	// Forward releases the packet to default forwarding.
	Forward() error
	// Drop discards the packet.
	Drop()
}

// punted is a packet that a switch has sent to the controller.
type punted interface {
	Hold(time.Duration) (Held, error)
	Output([]openflow.Action) error
}

// packetIn implements punted by a *network.PacketIn.
type packetIn struct{ *network.PacketIn }

func (p packetIn) Hold(d time.Duration) (Held, error) { return p.PacketIn.Hold(d) }
