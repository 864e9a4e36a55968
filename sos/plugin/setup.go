package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service/agents"
	"github.com/sluice-net/sluice/service/control"
	"github.com/sluice-net/sluice/sos/agentapi"
)

const (
	// undoTimeout bounds each of the steps by which a set-up is undone.
	undoTimeout = time.Second
	// maxAttempts is how many pairs of agents are asked when agents refuse.
	maxAttempts = 3
)

func newSession(f flow, entry *Entry, global Tuning, now time.Time) *session {
	ss := &session{
		id: agentapi.NewSessionID(), flow: f, entry: entry.ID, tuning: entry.Tuning.over(global),
		started: now,
		last:    map[agentapi.Role]agentapi.Counters{}, ended: map[agentapi.Role]agentapi.SessionRecord{},
		bothEnded: make(chan struct{}), over: make(chan struct{}),
	}
	ss.enter(StateSetup)
	return ss
}

// setUp takes a session from its held first packet to the packet's release. Any
// failure undoes everything and sends the packet on as if SOS were not there.
func (s *Service) setUp(ctx context.Context, ss *session, o offer, held Held) {
	watch := newStopwatch()
	s.mu.Lock()
	cfg := s.config
	s.mu.Unlock()
	done, err := s.inTurn(ctx, ss, cfg.setupTime(), func(ctx context.Context) (progressOf, error) {
		s.took(&ss.steps.Queue, &watch)
		return s.establish(ctx, ss, o, cfg, &watch)
	})
	if err != nil {
		s.undo(ss, done)
		s.mu.Lock()
		s.direct.add(ss.flow, time.Now())
		s.mu.Unlock()
		if ferr := held.Forward(); ferr != nil {
			s.strange.Warn(s.log, "first packet could not be forwarded", "session", ss.id, "flow", ss.flow, "error", ferr)
		}
		s.notEstablished(ss, err)
		return
	}
	s.mu.Lock()
	layout := ss.layout
	s.mu.Unlock()
	s.open(ss, layout, o.at, held.Output)
	s.established(ss, watch.total())
}

// open sends the client's first packet to its agent. If that fails, the client will
// send it again: its switch is gone, or it was held too long and has gone directly.
func (s *Service) open(ss *session, l Layout, at network.PortRef, output func([]openflow.Action) error) {
	actions, err := l.Opening(s.net.CanSet, at)
	if err == nil {
		err = output(actions)
	}
	if err != nil {
		s.log.Debug("first packet was not sent to its agent", "session", ss.id, "flow", ss.flow, "error", err)
	}
}

// took adds the time since the last step to one of a set-up's steps.
func (s *Service) took(step *agentapi.Duration, w *stopwatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*step += w.lap()
}

// inTurn does a set-up when it is its turn: few at a time are done fastest, and
// sessions whose clients do not come, as in a flood, must not fill the agents. What a
// session waits for its turn, half of its time at most, is not left to its set-up: a
// client that waits for long is better served without SOS.
func (s *Service) inTurn(ctx context.Context, ss *session, limit time.Duration, f func(context.Context) (progressOf, error)) (progressOf, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	queue, begun := context.WithTimeout(ctx, limit/2)
	defer begun()
	for _, turn := range []chan struct{}{s.halfOpen, s.working} {
		select {
		case turn <- struct{}{}:
		case <-queue.Done():
			if turn == s.working {
				<-s.halfOpen
			}
			return nothingDone, fmt.Errorf("%w: not begun after %v", errQueue, limit/2)
		}
	}
	defer func() { <-s.working }()
	s.mu.Lock()
	ss.halfOpen = true
	s.mu.Unlock()
	return f(ctx)
}

// opened gives back a session's place among those whose clients have not come
// yet. The lock is held.
func (s *Service) opened(ss *session) {
	if ss.halfOpen {
		ss.halfOpen = false
		<-s.halfOpen
	}
}

// progressOf a set-up says what has to be undone.
type progressOf uint8

const (
	nothingDone progressOf = iota
	agentsAsked
	rulesWritten
)

// establish does the steps of a set-up in order.
func (s *Service) establish(ctx context.Context, ss *session, o offer, cfg Config, watch *stopwatch) (progressOf, error) {
	server, err := s.findServer(ctx, o)
	if err != nil {
		return nothingDone, err
	}
	for attempt := 1; ; attempt++ {
		if err := s.engage(ctx, ss, o, server, cfg, watch); err != nil {
			return agentsAsked, err
		}
		err := s.writeFar(ctx, ss, cfg)
		s.took(&ss.steps.Rules, watch)
		if err == nil {
			break
		}
		if !errors.Is(err, network.ErrConflict) || attempt == maxAttempts {
			return rulesWritten, err
		}
		// The agent has taken a port again that a session which has just ended
		// still has rules for. It will take another.
		s.removeRules(ctx, ss)
		s.disengage(ss)
	}
	if err := s.commit(ctx, ss, cfg); err != nil {
		return rulesWritten, err
	}
	s.took(&ss.steps.Commit, watch)
	// The client's side comes last: until the server has accepted, a first
	// packet that the client sends again must not reach its agent.
	if err := s.writeSide(ctx, ss, agentapi.RoleClient, cfg); err != nil {
		return rulesWritten, err
	}
	s.took(&ss.steps.Client, watch)
	return rulesWritten, nil
}

// engage chooses agents and prepares them. Agents that refuse for a reason of
// their own are passed over and others are asked.
func (s *Service) engage(ctx context.Context, ss *session, o offer, server endpoint, cfg Config, watch *stopwatch) error {
	refused := map[*agent]bool{}
	for attempt := 1; ; attempt++ {
		if err := s.assignInTime(ctx, ss, o, server, refused); err != nil {
			return err
		}
		if err := s.plan(ss, o, server); err != nil {
			return err
		}
		s.took(&ss.steps.Select, watch)
		pass, err := s.prepare(ctx, ss, cfg)
		s.took(&ss.steps.Prepare, watch)
		if err == nil || len(pass) == 0 || attempt == maxAttempts || ctx.Err() != nil {
			return err
		}
		for _, i := range pass {
			refused[ss.agent(bothRole[i])] = true
		}
		s.disengage(ss)
	}
}

// disengage takes a session off its agents and gives it a new id, so that late
// answers to the old one cannot be mistaken.
func (s *Service) disengage(ss *session) {
	id, x, y := ss.id, ss.client, ss.server
	s.start(func(context.Context) { s.abort(id, x, y) })
	s.mu.Lock()
	defer s.mu.Unlock()
	ss.release()
	ss.client, ss.server = nil, nil
	delete(s.byID, ss.id)
	s.forgetAgentFlows(ss)
	ss.id = agentapi.NewSessionID()
	s.byID[ss.id] = ss
}

// prepare asks both agents at once. It returns which of them may be passed over for others.
func (s *Service) prepare(ctx context.Context, ss *session, cfg Config) (pass []int, err error) {
	about, err := json.Marshal(ss.context())
	if err != nil {
		return nil, fmt.Errorf("context of the session: %w", err)
	}
	key := agentapi.NewKey()
	request := func(r agentapi.Role) agentapi.PrepareRequest {
		peer := ss.layout.side(other(r)).Agent
		return agentapi.PrepareRequest{
			ID: ss.id, Key: key, Role: r, Client: ss.flow.client, Server: ss.flow.server,
			Peer: agentapi.Peer{Addr: peer, DataPorts: s.dataPorts(ss, other(r))}, Params: ss.tuning.params(),
			Idle: cfg.Idle, PeerTimeout: cfg.PeerTimeout, Context: about, Marks: ss.layout.marks(r),
		}
	}
	var replies [2]agentapi.PrepareReply
	errs := agents.Together(ctx, time.Duration(cfg.PrepareTimeout), ss.agents(), func(ctx context.Context, i int, a *agent) (err error) {
		replies[i], err = a.Client.Prepare(ctx, request(bothRole[i]))
		return err
	})
	if err := errs.Err(); err != nil {
		return errs.MayPass(), err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ss.marks = [2]agentapi.Marks{ss.layout.marks(bothRole[0]), ss.layout.marks(bothRole[1])}
	if err := ss.layout.settle(replies[0], replies[1]); err != nil {
		return nil, err
	}
	s.noteAgentFlows(ss)
	return nil, nil
}

var bothRole = [2]agentapi.Role{agentapi.RoleClient, agentapi.RoleServer}

// bothRoles does something for both agents at once.
func bothRoles(f func(int, agentapi.Role) error) (errs [2]error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		errs[1] = f(1, bothRole[1])
	}()
	errs[0] = f(0, bothRole[0])
	<-done
	return errs
}

// dataPorts are those of an agent's data ports that the session may use.
func (s *Service) dataPorts(ss *session, r agentapi.Role) []uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	ports := ss.agent(r).State().Status.DataPorts
	return slices.Clone(ports[:min(len(ports), max(ss.tuning.Paths, 1))])
}

// writeFar writes the rules of the server's side and those between the agents.
func (s *Service) writeFar(ctx context.Context, ss *session, cfg Config) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(cfg.RulesTimeout))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.usePair(ctx, ss) }()
	err := s.writeSide(ctx, ss, agentapi.RoleServer, cfg)
	return errors.Join(err, <-done)
}

// writeSide writes the rules between one end host and its agent and waits until
// the switches have them.
func (s *Service) writeSide(ctx context.Context, ss *session, r agentapi.Role, cfg Config) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(cfg.RulesTimeout))
	defer cancel()
	rules, err := s.rulesOf(&ss.layout, r)
	if err != nil {
		return fmt.Errorf("%w: %w", errRules, err)
	}
	if err := s.rules.Apply(ctx, ss.key(r), rule.Program{Rules: rules}, rule.ApplyOptions{}); err != nil {
		return fmt.Errorf("%w, of the %s's side: %w", errRules, r, err)
	}
	return nil
}

// commit has the server dialled; its answer decides. The client's agent opens
// the connections between the agents at the same time.
func (s *Service) commit(ctx context.Context, ss *session, cfg Config) error {
	return commitError(agents.Together(ctx, time.Duration(cfg.CommitTimeout), ss.agents(), func(ctx context.Context, _ int, a *agent) error {
		return a.Client.Commit(ctx, ss.id)
	}))
}

// commitError is why a commit failed. When the server has not taken the connection,
// that is all: that the client's agent then finds its peer gone follows from it.
func commitError(errs agents.Errors) error {
	var p *control.Problem
	if errors.As(errs[1], &p) && slices.Contains([]control.Code{control.CodeRefused, control.CodeTimeout, control.CodeUnreachable}, p.Code) {
		return p
	}
	return errs.Err()
}

// undo takes back what a failed set-up has done. The server's agent resets its
// connection while the rules still make the reset look like the client's.
func (s *Service) undo(ss *session, done progressOf) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 2*undoTimeout)
	defer cancel()
	switch done {
	case rulesWritten:
		s.abort(ss.id, ss.client, ss.server)
		s.removeRules(ctx, ss)
	case agentsAsked:
		// Without rules nothing of the agents is in the packet's way.
		id, x, y := ss.id, ss.client, ss.server
		s.start(func(context.Context) { s.abort(id, x, y) })
	}
}

// abort makes the agents reset and forget a session; those that are nil are
// left out.
func (s *Service) abort(id agentapi.SessionID, of ...*agent) {
	of = slices.DeleteFunc(of, func(a *agent) bool { return a == nil })
	agents.Together(context.WithoutCancel(s.ctx), undoTimeout, of, func(ctx context.Context, _ int, a *agent) error {
		err := a.Client.Abort(ctx, id)
		if err != nil && control.CodeOf(err) != control.CodeNotFound {
			s.log.Debug("session could not be aborted", "agent", a.Name, "session", id, "error", err)
		}
		return nil
	})
}

// removeRules removes the session's rules from the switches.
func (s *Service) removeRules(ctx context.Context, ss *session) {
	errs := bothRoles(func(_ int, r agentapi.Role) error { return s.rules.Remove(ctx, ss.key(r)) })
	if err := errors.Join(errs[:]...); err != nil {
		s.log.Warn("rules could not be removed", "session", ss.id, "error", err)
	}
	if ss.pair != "" {
		s.dropPair(ss)
	}
}
