package sos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

const (
	// undoTimeout bounds each step of undoing a set-up.
	undoTimeout = time.Second
	// maxAttempts is how many pairs of agents are asked if agents refuse.
	maxAttempts = 3
)

// setup establishes a session for a connection whose first packet is held.
type setup struct {
	*setups
	ss     *session
	o      offer
	server endpoint
	cfg    Config
	watch  stopwatch
	done   progress
}

// progress records how far a set-up has come, and so what has to be undone.
type progress uint8

const (
	nothingDone progress = iota
	agentsAsked
	rulesWritten
)

// recordStep adds the time since the last step to the given step.
func (x *setup) recordStep(step *agentapi.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	*step += x.watch.lap()
}

// runLimited runs f once both limits admit it: the one on half-open sessions and the one on
// active set-ups. Few set-ups at a time finish fastest, and sessions whose clients never
// arrive, as in a SYN flood, must not fill the agents. It waits for at most half of limit:
// a client that would wait longer is better served without SOS.
func (x *setup) runLimited(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	queue, begun := context.WithTimeout(ctx, limit/2)
	defer begun()
	for _, turn := range []chan struct{}{x.sessions.halfOpen, x.active} {
		select {
		case turn <- struct{}{}:
		case <-queue.Done():
			if turn == x.active {
				<-x.sessions.halfOpen
			}
			return fmt.Errorf("%w: not begun after %v", errQueue, limit/2)
		}
	}
	defer func() { <-x.active }()
	x.mu.Lock()
	x.ss.halfOpen = true
	x.mu.Unlock()
	return f(ctx)
}

// establish performs the steps of a set-up in order.
func (x *setup) establish(ctx context.Context) (err error) {
	x.recordStep(&x.ss.steps.Queue)
	if x.server, err = x.findServer(ctx); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		x.done = agentsAsked
		if err := x.prepareAgents(ctx); err != nil {
			return err
		}
		x.done = rulesWritten
		err := x.writeServerSide(ctx)
		x.recordStep(&x.ss.steps.Rules)
		if err == nil {
			break
		}
		if !errors.Is(err, network.ErrConflict) || attempt == maxAttempts {
			return err
		}
		// The agent has reused a port for which a session that has just ended still has
		// rules. It will choose another.
		x.endings.removeRules(ctx, x.ss)
		x.resetAgents()
	}
	if err := x.commit(ctx); err != nil {
		return err
	}
	x.recordStep(&x.ss.steps.Commit)
	// The client's side comes last: until the server has accepted, a first packet that the
	// client repeats must not reach its agent.
	if err := x.write(ctx, agentapi.RoleClient); err != nil {
		return err
	}
	x.recordStep(&x.ss.steps.Client)
	return nil
}

// prepareAgents chooses agents and prepares them. If an agent refuses for a reason of its
// own, it tries others.
func (x *setup) prepareAgents(ctx context.Context) error {
	refused := map[*agent]bool{}
	for attempt := 1; ; attempt++ {
		if err := x.assignOrWait(ctx, refused); err != nil {
			return err
		}
		if err := x.plan(); err != nil {
			return err
		}
		x.recordStep(&x.ss.steps.Select)
		pass, err := x.prepare(ctx)
		x.recordStep(&x.ss.steps.Prepare)
		if err == nil || len(pass) == 0 || attempt == maxAttempts || ctx.Err() != nil {
			return err
		}
		for _, i := range pass {
			refused[x.ss.agents()[i]] = true
		}
		x.resetAgents()
	}
}

// resetAgents detaches the session from its agents and gives it a new id, so that late
// answers to the old id cannot be taken for answers to the new one.
func (x *setup) resetAgents() {
	x.abortLater()
	ss, t := x.ss, x.sessions
	x.mu.Lock()
	defer x.mu.Unlock()
	ss.releaseAgents()
	ss.client, ss.server, ss.ClientAgent, ss.ServerAgent = nil, nil, "", ""
	delete(t.byID, ss.id)
	t.forgetAgentFlows(ss)
	ss.id = agentapi.NewSessionID()
	t.byID[ss.id] = ss
}

// prepare asks both agents at once. If it fails, pass holds the indices of the agents that
// may be replaced by others.
func (x *setup) prepare(ctx context.Context) (pass []int, err error) {
	ss, l := x.ss, &x.ss.Layout
	about, err := json.Marshal(ss.sessionContext)
	if err != nil {
		return nil, fmt.Errorf("context of the session: %w", err)
	}
	key := agentapi.NewKey()
	var replies [2]agentapi.PrepareReply
	marks := [2]agentapi.Marks{l.marks(roles[0]), l.marks(roles[1])}
	errs := agents.Together(ctx, time.Duration(x.cfg.PrepareTimeout), ss.agents(), func(ctx context.Context, i int, a *agent) (err error) {
		peer := other(roles[i])
		ports := ss.agent(peer).State().Status.DataPorts
		replies[i], err = a.Client.Prepare(ctx, agentapi.PrepareRequest{
			ID: ss.id, Key: key, Role: roles[i], Client: ss.flow.client, Server: ss.flow.server,
			Peer:   agentapi.Peer{Addr: l.side(peer).Agent, DataPorts: ports[:min(len(ports), max(ss.Tuning.Paths, 1))]},
			Paths:  x.pairs.knownPaths(ss, roles[i]),
			Params: ss.Tuning.params(), Idle: x.cfg.Idle, PeerTimeout: x.cfg.PeerTimeout, Context: about, Marks: marks[i],
		})
		return err
	})
	if err := errs.Err(); err != nil {
		return errs.MayPass(), err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	ss.marks = marks
	if err := l.complete(replies[0], replies[1]); err != nil {
		return nil, err
	}
	x.sessions.noteAgentFlows(ss)
	return nil, nil
}

// writeServerSide writes the rules of the server's side and those between the agents.
func (x *setup) writeServerSide(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(x.cfg.RulesTimeout))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- x.pairs.acquire(ctx, x.ss) }()
	err := x.write(ctx, agentapi.RoleServer)
	return errors.Join(err, <-done)
}

// write writes the rules of one side.
func (x *setup) write(ctx context.Context, r agentapi.Role) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(x.cfg.RulesTimeout))
	defer cancel()
	if err := x.writeSide(ctx, x.ss, &x.ss.Layout, r, rule.ApplyOptions{}); err != nil {
		return fmt.Errorf("%w, of the %s's side: %w", errRules, r, err)
	}
	return nil
}

// commit makes the server's agent dial the server, whose answer decides. The client's agent
// opens the connections between the agents at the same time.
func (x *setup) commit(ctx context.Context) error {
	return commitError(agents.Together(ctx, time.Duration(x.cfg.CommitTimeout), x.ss.agents(), func(ctx context.Context, _ int, a *agent) error {
		return a.Client.Commit(ctx, x.ss.id)
	}))
}

// commitError returns why a commit failed. If the server did not accept the connection, it
// returns only that error: the client's agent then reports its peer as gone, which is a
// consequence.
func commitError(errs agents.Errors) error {
	var p *control.Problem
	if errors.As(errs[1], &p) && slices.Contains([]control.Code{control.CodeRefused, control.CodeTimeout, control.CodeUnreachable}, p.Code) {
		return p
	}
	return errs.Err()
}

// undo reverts what a failed set-up has done. The server's agent resets its connection
// while the rules still make the reset look like the client's.
func (x *setup) undo() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), 2*undoTimeout)
	defer cancel()
	switch x.done {
	case rulesWritten:
		x.abort(x.ss.id, x.ss.agents()...)
		x.endings.removeRules(ctx, x.ss)
	case agentsAsked:
		// Without rules, no agent is in the packet's path, so nobody has to wait.
		x.abortLater()
	}
}

// abortLater aborts the session at its agents without waiting for them.
func (x *setup) abortLater() {
	id, both := x.ss.id, x.ss.agents()
	x.start(func(context.Context) { x.abort(id, both...) })
}
