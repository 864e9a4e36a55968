package plugin

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service/agents"
	"github.com/sluice-net/sluice/sos/agentapi"
)

const (
	// maxWorking is how many sessions are set up at once.
	maxWorking = 32
	// heldExtra is how much longer a first packet is held than its set-up may take:
	// the time to undo it.
	heldExtra = 3 * time.Second
)

// setups takes connections from their held first packets to sessions.
type setups struct {
	*core
	sessions *sessions
	history  *history
	pairs    *pairs
	endings  *endings
	keeper   *keeper
	working  chan struct{} // holds a token for each set-up that is being done
	costs    agents.Costs
	talk     talk // under the lock
}

// offered admits a connection, lets its retransmitted first packet join, or
// lets it go directly.
func (s *setups) offered(o offer, entry *Entry, p punted) network.Verdict {
	s.mu.Lock()
	if old := s.sessions.byFlow[o.flow]; old != nil && old.state != StateSetup {
		s.mu.Unlock()
		return s.again(old, o, entry, p)
	}
	ss, verdict := s.sessions.admit(o, entry)
	limit := s.config.setupTime()
	s.mu.Unlock()
	if ss == nil {
		return verdict
	}
	held, err := p.Hold(limit + heldExtra)
	if err != nil {
		s.mu.Lock()
		s.sessions.admitted(ss)
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

// run takes a session from its held first packet to the packet's release. Any
// failure undoes everything and sends the packet on as if SOS were not there.
func (s *setups) run(ctx context.Context, ss *session, o offer, held Held) {
	now := time.Now()
	x := &setup{setups: s, ss: ss, o: o, cfg: s.settings(), watch: stopwatch{now, now}}
	if err := x.inTurn(ctx, x.cfg.setupTime(), x.establish); err != nil {
		x.undo()
		s.mu.Lock()
		s.sessions.direct.add(ss.flow, time.Now())
		s.mu.Unlock()
		if ferr := held.Forward(); ferr != nil {
			s.strange.Warn(s.log, "first packet could not be forwarded", "session", ss.id, "flow", ss.flow, "error", ferr)
		}
		s.failed(ss, err)
		return
	}
	s.mu.Lock()
	layout := ss.Layout
	s.mu.Unlock()
	s.open(ss, layout, o.at, held.Output)
	s.established(ss, x.watch.total())
}

// open sends the client's first packet to its agent. If that fails, the client will
// send it again: its switch is gone, or it was held too long and has gone directly.
func (s *setups) open(ss *session, l Layout, at network.PortRef, output func([]openflow.Action) error) {
	actions, err := l.Opening(s.net.CanSet, at)
	if err == nil {
		err = output(actions)
	}
	if err != nil {
		s.log.Debug("first packet was not sent to its agent", "session", ss.id, "flow", ss.flow, "error", err)
	}
}

// established makes a set-up session a live one.
func (s *setups) established(ss *session, total agentapi.Duration) {
	s.mu.Lock()
	s.sessions.admitted(ss)
	ss.steps.Total = total
	ss.enter(StateLive)
	steps, rec := ss.steps, ss.record()
	ended, news := len(ss.ended) > 0, s.keeper.carriesAnew(ss) || ss.behind(s.treatments.Epoch())
	s.mu.Unlock()
	if news {
		s.wake()
	}
	s.metrics.established(steps)
	s.publish("session.established", rec)
	s.log.Debug("session is up", "session", ss.id, "flow", ss.flow, "setup", steps.Total)
	if ended {
		s.endings.windUp(ss)
	}
}

// failed records a session that never was one.
func (s *setups) failed(ss *session, err error) {
	s.mu.Lock()
	s.sessions.admitted(ss)
	s.sessions.remove(ss)
	ss.how = notEstablished + err.Error()
	s.history.finish(ss)
	now, why := time.Now(), reasonOf(err)
	s.sessions.directs.add(why, err.Error(), now)
	told := s.talk.may(now)
	s.mu.Unlock()
	s.metrics.failed.WithLabelValues(string(why)).Inc()
	if !told {
		return
	}
	s.publish("session.direct", map[string]any{"session": ss.id, "client": ss.flow.client, "server": ss.flow.server, "reason": why, "why": err.Error()})
	s.log.Info("connection goes directly", "flow", ss.flow, "reason", why, "why", err)
}

// maxTalk is how many connections that go directly are told of in a second; in
// a flood the metrics have to do.
const maxTalk = 20

// talk counts what has been told in the present second.
type talk struct {
	second int64
	n      int
}

func (t *talk) may(now time.Time) bool {
	if sec := now.Unix(); sec != t.second {
		*t = talk{second: sec}
	}
	t.n++
	return t.n <= maxTalk
}
