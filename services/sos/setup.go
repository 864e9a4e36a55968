package sos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

const (

	// maxAttempts bounds the number of pairs of agents that are tried.
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

// progress records how far a set-up has come. It determines what has to be undone.
type progress uint8

const (
	nothingDone progress = iota
	agentsAsked
	rulesWritten
)

// recordStep adds the time since the previous step ended to the given step's duration.
func (x *setup) recordStep(step *agentapi.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	*step += x.watch.lap()
}

// runLimited runs f once two limits admit it: one on half-open sessions and one on active set-ups.
// A few set-ups at a time finish fastest. Sessions whose clients never arrive, as in a SYN flood,
// must not fill the agents. runLimited waits for at most half of limit: a client that would wait
// longer is better served without SOS.
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
		// The agent has reused a port for which a session that has just ended still has rules. On
		// the next attempt it chooses another port.
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

// prepareAgents chooses agents and prepares them. If an agent refuses for a reason of its own,
// prepareAgents tries other agents.
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

// prepare asks both agents at once to prepare the session. If it fails, pass holds the indices of
// the agents that may be replaced by others.
func (x *setup) prepare(ctx context.Context) (pass []int, err error) {
	ss, l := x.ss, &x.ss.Layout
	about, err := json.Marshal(ss.sessionContext)
	if err != nil {
		return nil, fmt.Errorf("context of the session: %w", err)
	}
	key := agentapi.NewKey()
	var replies [2]agentapi.PrepareReply
	marks := [2]agentapi.Marks{l.marks(roles[0]), l.marks(roles[1])}
	x.mu.Lock()
	ends := ss.ends()
	x.mu.Unlock()
	errs := agents.Together(ctx, time.Duration(x.cfg.PrepareTimeout), ss.agents(), func(ctx context.Context, i int, a *agent) (err error) {
		peer := other(roles[i])
		ports := ss.agent(peer).State().Status.DataPorts
		replies[i], err = a.Client.Prepare(ctx, agentapi.PrepareRequest{
			ID: ss.id, Key: key, Role: roles[i], Client: ss.flow.client, Server: ss.flow.server,
			Peer:   agentapi.Peer{Addr: l.side(peer).Agent, DataPorts: ports[:min(len(ports), max(ss.Tuning.Paths, 1))]},
			Paths:  x.pairs.knownPaths(ends, roles[i]),
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

// writeServerSide writes the rules of the server's side and the rules between the agents.
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

// commit makes the server's agent connect to the server, and fails if the server does not accept.
// The client's agent opens the connections between the agents at the same time.
func (x *setup) commit(ctx context.Context) error {
	return commitError(agents.Together(ctx, time.Duration(x.cfg.CommitTimeout), x.ss.agents(), func(ctx context.Context, _ int, a *agent) error {
		return a.Client.Commit(ctx, x.ss.id)
	}))
}

// commitError returns the error of a commit. If the server did not accept the connection, it
// returns only that error. The client's agent then reports its peer as gone, but that is a
// consequence.
func commitError(errs agents.Errors) error {
	var p *control.Problem
	if errors.As(errs[1], &p) && slices.Contains([]control.Code{control.CodeRefused, control.CodeTimeout, control.CodeUnreachable}, p.Code) {
		return p
	}
	return errs.Err()
}

// undo reverts the steps of a failed set-up. The server's agent resets its connection while the
// rules still make the reset look like the client's.
func (x *setup) undo() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), 2*undoTimeout)
	defer cancel()
	switch x.done {
	case rulesWritten:
		x.abort(x.ss.id, x.ss.agents()...)
		x.endings.removeRules(ctx, x.ss)
	case agentsAsked:
		// Without rules, no packet passes the agents, so undo need not wait for them.
		x.abortLater()
	}
}

// abortLater aborts the session at its agents without waiting for them.
func (x *setup) abortLater() {
	id, both := x.ss.id, x.ss.agents()
	x.start(func(context.Context) { x.abort(id, both...) })
}

// costTo returns the cost function of paths between an end and an agent. For a mobile end, the cost
// is infinite unless the agent is at one of the end's borders: packets would have to turn round at
// the border, on paths that change.
func (s *setups) costTo(e endpoint, top *topology.Topology, m network.Metric) func(agent network.PortRef) float64 {
	if e.anchor == nil {
		return s.costs.From(top, e.At, m)
	}
	return func(agent network.PortRef) float64 {
		if at, ok := e.anchor.Border(agent.Switch); ok {
			return s.costs.From(top, at, m)(agent)
		}
		return math.Inf(1)
	}
}

// checkCarriable returns an error that says why connections of a mobile host cannot be carried by
// agents, or nil.
func (s *setups) checkCarriable(a *network.Anchor) error {
	if a == nil {
		return nil
	}
	for _, at := range a.Borders {
		if s.net.Topology().Has(at.Switch) && !s.net.HasTables(at.Switch) {
			return fmt.Errorf("%w, and all it sends and gets passes switch %v, which has one table: there the rules that lead the host come first", errMobile, at.Switch)
		}
	}
	return nil
}

const (
	// resolveTimeout bounds the search for a server whose place is not known. startTimeout bounds
	// this search shortly after a start, when no host is known.
	resolveTimeout = 500 * time.Millisecond
	startTimeout   = 2 * time.Second
	// announceTimeout is how long after a start agents may take to report their ports and to be
	// found in the network.
	announceTimeout = 2 * time.Second
)

// findServer finds the place at which the server's packets are intercepted: the server's own place,
// or that of the router by which the client reaches it.
func (x *setup) findServer(ctx context.Context) (endpoint, error) {
	addr := x.o.flow.server.Addr()
	a := x.anchorOf(addr)
	for _, moving := range []*network.Anchor{x.o.anchor, a} {
		if err := x.checkCarriable(moving); err != nil {
			return endpoint{}, err
		}
	}
	if a != nil {
		if x.o.anchor != nil {
			return endpoint{}, fmt.Errorf("%w, and so is the other: their packets need not pass a border", errMobile)
		}
		return endpoint{Place: agents.Place{At: a.Borders[0], MAC: a.MAC}, routed: a.MAC != x.o.ethDst, anchor: a}, nil
	}
	h, ok := x.net.HostByIP(addr)
	if !ok {
		limit := resolveTimeout
		if x.beganWithin(x.opts.Settle) {
			limit = startTimeout
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		var err error
		if h, err = x.net.ResolveHost(ctx, addr); err != nil {
			if h, ok = x.net.HostByMAC(x.o.ethDst, x.o.vlan); !ok {
				return endpoint{}, fmt.Errorf("%w: %v: %w", errNoServer, addr, err)
			}
		}
	}
	return endpoint{Place: agents.PlaceOf(h), routed: h.MAC != x.o.ethDst}, nil
}

// assignOrWait assigns agents to the session. If no pair of agents is suitable, it waits for agents
// that are expected to announce themselves.
func (x *setup) assignOrWait(ctx context.Context, refused map[*agent]bool) error {
	for {
		err := x.assign(refused)
		if !errors.Is(err, ErrNoGain) || !x.agents.Expected(x.beganWithin(announceTimeout)) || tasks.Sleep(ctx, settleEvery) != nil {
			return err
		}
	}
}

// assign chooses the session's agents and counts the session as theirs at once. Sessions that are
// set up at the same time are therefore spread over the agents.
func (x *setup) assign(refused map[*agent]bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	metric, top := x.config.metric(), x.net.Topology()
	list, of := x.agents.Candidates(x.o.flow.client.Addr(), refused, x.costTo(x.o.client(), top, metric), x.costTo(x.server, top, metric))
	limit := agents.Tolerance(metric, time.Duration(x.config.EqualLatency).Seconds())
	client, server, err := Choose(list, limit, x.config.Balance)
	switch moves := x.o.anchor != nil || x.server.anchor != nil; {
	case err != nil && moves:
		return fmt.Errorf("%w, and its agent has to stand at its border: %w", errMobile, err)
	case err != nil:
		return err
	}
	x.ss.assignAgents(of[client], of[server])
	return nil
}

// plan computes the session's layout, except for the parts that only the agents know.
func (x *setup) plan() error {
	top := x.net.Topology()
	x.mu.Lock()
	defer x.mu.Unlock()
	metric := x.config.metric()
	ss, client, server := x.ss, x.o.client(), x.server
	ss.ClientAt, ss.ServerAt = x.o.at, server.At
	ss.Layout = Layout{
		Client: x.o.flow.client, Server: x.o.flow.server, DSCP: x.o.dscp,
		ClientSide: Side{EndMAC: client.MAC, FarMAC: x.o.ethDst, EndVLAN: x.o.vlan},
		ServerSide: Side{EndMAC: server.MAC, EndVLAN: server.VLAN},
	}
	l := &ss.Layout
	if !server.routed {
		l.ServerSide.FarMAC = client.MAC
	}
	if err := l.ClientSide.attach(ss.client, x.o.flow.client.Addr(), client, top, metric); err != nil {
		return err
	}
	if err := l.ServerSide.attach(ss.server, x.o.flow.client.Addr(), server, top, metric); err != nil {
		return err
	}
	l.ClientSide.PuntsSYN = x.puntsSYN(&l.ClientSide)
	ss.epoch = x.treatments.Epoch()
	l.updateTreatments(x.treatments.Of)
	_, l.Steered = top.Path(l.ClientSide.agentAt(), l.ServerSide.agentAt(), network.MetricHops)
	return nil
}

// attach sets the agent of a side and the path between the end host and that agent.
func (sd *Side) attach(a *agent, family netip.Addr, end endpoint, top *topology.Topology, metric network.Metric) error {
	st := a.State()
	addr, _ := st.Addr(family)
	p, ok := st.Places[addr]
	if !ok {
		return fmt.Errorf("agent %s %s", a.Name, st.Unfit(family))
	}
	sd.Agent, sd.AgentMAC, sd.AgentVLAN = addr, p.MAC, p.VLAN
	if end.anchor != nil {
		var err error
		if sd.MobilePaths, err = pathsTo(end.anchor, p.At, top, metric); err != nil {
			return fmt.Errorf("agent %s: %w", a.Name, err)
		}
	}
	path, ok := top.Path(end.At, p.At, metric)
	if !ok {
		return fmt.Errorf("from %v to agent %s at %v: %w", end.At, a.Name, p.At, network.ErrNoPath)
	}
	sd.Path = path.Hops
	return nil
}

// ErrNoGain means that no pair of agents lies between the ends in such a way that carrying
// the connection would improve it.
var ErrNoGain = errors.New("no pair of agents would help the connection")

// Choose returns the indices of the client's and the server's agent among the candidates, whose
// costs are those to the client and to the server. For each end it takes the nearest agent, and
// among equally near ones the least loaded. Agents count as equally near if their costs differ by
// at most tolerance.
func Choose(list []agents.Candidate, tolerance float64, by agents.Balance) (client, server int, err error) {
	if client, err = agents.Nearest(list, 0, tolerance, by); err != nil {
		return 0, 0, fmt.Errorf("%w: for the client: %w", ErrNoGain, err)
	}
	if server, err = agents.Nearest(list, 1, tolerance, by, client); err != nil {
		return 0, 0, fmt.Errorf("%w: for the server: %w", ErrNoGain, err)
	}
	// An agent that is as near to the far end as the other agent does not shorten the connection.
	// If both ends are at one site, or if only one site has agents left, the connection performs
	// better without agents.
	x, y := &list[client], &list[server]
	if y.Costs[1]+tolerance >= x.Costs[1] || x.Costs[0]+tolerance >= y.Costs[0] {
		return 0, 0, fmt.Errorf("%w: %s and %s are equally near to an end", ErrNoGain, x.Name, y.Name)
	}
	return client, server, nil
}
