package plugin

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/sos/agentapi"
)

const (
	// probes is how often an agent is asked whether it is alive; probeTimeout
	// bounds each question, probePause lies between them.
	probes       = 2
	probeTimeout = 300 * time.Millisecond
	probePause   = 50 * time.Millisecond
	// retryAfter is how soon an agent that was given up is tried again.
	retryAfter = time.Second
)

var errReplaced = errors.New("agent was started again")

// watchAgent follows one agent's events until ctx ends. It gives the agent up
// when it is silent, and takes it back when it is heard again.
func (s *Service) watchAgent(ctx context.Context, a *agent) {
	for ctx.Err() == nil {
		err := s.followEvents(ctx, a)
		if ctx.Err() != nil {
			return
		}
		dead := s.ask(ctx, a)
		if dead == nil {
			if tasks.Sleep(ctx, probePause) != nil {
				return
			}
			continue
		}
		s.giveUp(ctx, a, err, dead)
		if tasks.Sleep(ctx, retryAfter) != nil {
			return
		}
	}
}

// followEvents returns when the stream ends, with the reason.
func (s *Service) followEvents(ctx context.Context, a *agent) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.mu.Lock()
	// Within the time allowed, the questions have to be asked as well.
	silent := time.Duration(s.config.SilentAfter) - probes*(probeTimeout+probePause)
	s.mu.Unlock()
	quiet := time.AfterFunc(silent, func() { cancel(agentapi.ErrSilent) })
	defer quiet.Stop()
	err := a.client.Watch(ctx, func(e agentapi.Event) {
		quiet.Reset(silent)
		s.agentEvent(a, e)
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// ask asks an agent whose event stream broke for its state, since a broken stream
// is no proof: twice, with short deadlines, before it is given up. The error says
// how it did not answer.
func (s *Service) ask(ctx context.Context, a *agent) error {
	var err error
	for range probes {
		limited, cancel := context.WithTimeout(ctx, probeTimeout)
		var st agentapi.Status
		st, err = a.client.Status(limited)
		cancel()
		if err == nil {
			s.learn(a, st)
			return nil
		}
		if tasks.Sleep(ctx, probePause) != nil {
			break
		}
	}
	return err
}

// learn keeps what an agent's status says.
func (s *Service) learn(a *agent, st agentapi.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := a.status.SessionPorts != st.SessionPorts
	a.status = st
	if changed {
		s.refreshView()
		s.wake()
	}
}

// agentEvent takes in one event: load, counters, ended sessions.
func (s *Service) agentEvent(a *agent, e agentapi.Event) {
	s.mu.Lock()
	replaced := a.instance != "" && a.instance != e.Instance
	returned := a.liveness != AgentUp
	before := a.stored && a.instance == "" // we have not heard it yet, but another controller may have
	if a.instance != e.Instance {
		a.instance, a.lastSeq = e.Instance, 0
	}
	a.liveness, a.err, a.lastSeen = AgentUp, "", time.Now()
	if returned {
		a.news = a.lastSeen
	}
	a.status.Load = e.Status
	var ended []agentapi.SessionRecord
	missed := false
	for _, r := range e.Ended {
		if r.Seq > a.lastSeq {
			missed = missed || r.Seq != a.lastSeq+1
			ended = append(ended, r)
			a.lastSeq = r.Seq
		}
	}
	for _, l := range e.Live {
		if ss := s.byID[l.ID]; ss != nil && ss.agent(l.Role) == a {
			ss.progress(l.Role, l.Counters, a.lastSeen)
			if l.Role == agentapi.RoleClient && (l.Phase == agentapi.PhaseRunning || l.Phase == agentapi.PhaseClosing) {
				s.proven(ss)
			}
		}
	}
	s.mu.Unlock()
	if returned {
		s.publish("agent.up", map[string]any{"agent": a.record.Name})
		s.log.Info("agent is up", "agent", a.record.Name, "url", a.record.URL)
		s.start(func(ctx context.Context) { s.greet(ctx, a) })
		s.wake()
	}
	for _, r := range ended {
		s.agentDone(r, before)
	}
	if replaced {
		s.loseSessions(a, errReplaced)
	} else if missed {
		s.start(func(ctx context.Context) { s.findMissed(ctx, a) })
	}
}

// findMissed ends the sessions whose end an agent no longer remembers: it keeps
// only so many, and its events may have been out of reach for a while.
func (s *Service) findMissed(ctx context.Context, a *agent) {
	type half struct {
		id   agentapi.SessionID
		role agentapi.Role
	}
	unknown := map[half]agentapi.Counters{}
	s.mu.Lock()
	for id, ss := range s.byID {
		for _, r := range bothRole {
			if _, over := ss.ended[r]; !over && ss.state == StateLive && ss.agent(r) == a {
				unknown[half{id, r}] = ss.last[r]
			}
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list, err := a.client.Sessions(ctx)
	if err != nil {
		s.log.Warn("agent does not say which sessions it carries", "agent", a.record.Name, "error", err)
		return
	}
	for _, x := range list {
		delete(unknown, half{x.ID, x.Role})
	}
	for h, last := range unknown {
		s.mu.Lock()
		ss := s.byID[h.id]
		told := ss == nil || ss.ended[h.role].Reason != ""
		s.mu.Unlock()
		if told {
			continue
		}
		s.agentDone(agentapi.SessionRecord{
			Reason: agentapi.ReasonClosed, Detail: "how is not known",
			Session: agentapi.Session{ID: h.id, Role: h.role, Counters: last},
		}, false)
	}
}

// greet completes what is known of an agent that has just been heard.
func (s *Service) greet(ctx context.Context, a *agent) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st, err := a.client.Status(ctx)
	s.mu.Lock()
	draining := a.record.Draining
	s.mu.Unlock()
	if err == nil && st.Draining != draining {
		// It was drained for a controller that has forgotten it since, or was not
		// reached when it was.
		st, err = a.client.Drain(ctx, draining)
	}
	if err == nil {
		s.learn(a, st)
	}
	s.tellLate(ctx, a)
	s.findAgent(ctx, a)
}

// giveUp takes an agent out of service whose events ended for cause, and which
// did not answer then. What becomes of its sessions is judged apart.
func (s *Service) giveUp(ctx context.Context, a *agent, cause, answer error) {
	s.mu.Lock()
	was := a.liveness
	a.liveness = AgentSilent
	a.refused = errors.Is(answer, syscall.ECONNREFUSED)
	if cause != nil {
		a.err = cause.Error()
	}
	if was != AgentSilent {
		a.silentSince = time.Now()
	}
	s.mu.Unlock()
	if was == AgentSilent {
		return
	}
	s.log.Warn("agent is silent", "agent", a.record.Name, "url", a.record.URL, "error", cause)
	s.publish("agent.silent", map[string]any{"agent": a.record.Name, "error": a.err})
	s.start(func(context.Context) { s.judgeWhileSilent(ctx, a) })
}

// findAgent looks for the agent's addresses in the network, by ARP or neighbour
// discovery where they have not been seen.
func (s *Service) findAgent(ctx context.Context, a *agent) {
	for _, addr := range a.record.Addrs {
		h, ok := s.net.HostByIP(addr)
		if !ok {
			var err error
			if h, err = s.net.ResolveHost(ctx, addr); err != nil {
				s.mu.Lock()
				a.err = "place of " + addr.String() + ": " + err.Error()
				a.missed[addr] = true
				s.mu.Unlock()
				continue
			}
		}
		s.mu.Lock()
		a.places[addr] = placeOf(h)
		delete(a.missed, addr)
		a.err = ""
		s.mu.Unlock()
	}
}

// progress takes in an agent's counters. The lock is held.
func (ss *session) progress(r agentapi.Role, c agentapi.Counters, at time.Time) {
	ss.last[r] = c
	if r != agentapi.RoleClient && ss.last[agentapi.RoleClient] != (agentapi.Counters{}) {
		return
	}
	ss.samples.add(Sample{At: at, BytesUp: c.BytesUp, BytesDown: c.BytesDown, Retransmits: ss.retransmits()})
}

// retransmits adds up what both agents sent again.
func (ss *session) retransmits() uint64 {
	return ss.last[agentapi.RoleClient].Retransmits + ss.last[agentapi.RoleServer].Retransmits
}
