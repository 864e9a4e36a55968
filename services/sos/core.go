package sos

import (
	"context"
	"iter"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/store"
)

// Name is the name of the service. The paths of its API and its keys in the store begin with it,
// and it is the owner of the service's rules.
const Name = "sos"

const (
	// undoTimeout bounds each step of undoing a set-up.
	undoTimeout = time.Second
	// rerouteTimeout bounds the time to write one new path.
	rerouteTimeout = 5 * time.Second
	// agentsAtOnce is the number of agents that are asked at once.
	agentsAtOnce = 16
)

// registry holds the agents of SOS, and agent is one of these agents.
type (
	registry = agents.Registry[*agentapi.Client, agentapi.SessionRecord, agentapi.Live]
	agent    = agents.Agent[*agentapi.Client]
)

// eachUp calls ask for those of some agents that are up, for several at the same time, and waits until
// all calls have returned.
func eachUp(some iter.Seq[*agent], ask func(*agent)) {
	up := slices.DeleteFunc(slices.Collect(some), func(a *agent) bool { return a.State().Liveness != agents.Up })
	tasks.Each(up, agentsAtOnce, ask)
}

// core holds what all parts of the service share.
type core struct {
	net       kit.Network
	rules     kit.Ledger
	store     store.Store
	bus       *event.Bus
	log       *slog.Logger
	warnLimit lograte.Limit // limits warnings that any client can cause
	opts      Options
	metrics   *metrics
	agents    *registry
	// treatments holds the treatments (queue and DSCP) that other services promise to connections.
	treatments *network.Treatments

	// tasks holds the goroutines that Run waits for. Their context, ctx, ends when Run
	// ends.
	tasks *tasks.Group
	ctx   context.Context
	// resync runs the reconciliation of punt rules and paths.
	resync kit.Loop
	// divide runs the division of links among agents.
	divide kit.Loop
	// warmUp runs the search for pairs of agents that open connections before their first session.
	warmUp kit.Loop

	// mu guards the fields below, and the changing fields of the parts and of their sessions.
	mu      sync.Mutex
	running bool
	began   time.Time // when the start was finished
	config  Config
}

// start runs f in a goroutine that Run waits for, and reports whether it does. After Run has ended,
// start does nothing.
func (s *core) start(f func(context.Context)) bool { return s.tasks.Start(f) }

// wake requests a reconciliation of punt rules and paths, and a search for pairs of agents that open
// connections before their first session.
func (s *core) wake() {
	s.resync.Wake()
	s.warmUp.Wake()
}

// publish puts an event on the bus.
func (s *core) publish(kind string, attrs any) {
	if s.bus != nil {
		s.bus.Publish(Name+"."+kind, attrs)
	}
}

// settings returns the current configuration.
func (s *core) settings() Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// isLive reports whether a session is live.
func (s *core) isLive(ss *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ss.state == StateLive
}

// beganWithin reports whether the start was finished less than d ago.
func (s *core) beganWithin(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.began) < d
}

// anchorOf returns the anchor of a mobile host's address, or nil if the address is not
// mobile.
func (s *core) anchorOf(a netip.Addr) *network.Anchor {
	if anchor, ok := s.net.Anchored(a); ok {
		return &anchor
	}
	return nil
}

// matchesTCPFlags reports whether a switch's rules can match TCP flags.
func (s *core) matchesTCPFlags(d openflow.DatapathID) bool {
	can, _ := s.net.CanMatch(d, openflow.FieldTCPFlags)
	return can
}

// puntsSYN reports whether every switch at which a side's packets enter still sends first packets
// of connections to the controller while the session's rules are installed.
func (s *core) puntsSYN(sd *Side) bool {
	return !slices.ContainsFunc(sd.allPaths(), func(path []network.Hop) bool { return !s.matchesTCPFlags(path[0].Switch) })
}

// rulesOf returns the rules of one side of a session, with the queues of its treatments.
func (s *core) rulesOf(l *Layout, r agentapi.Role) ([]network.Rule, error) {
	rules, err := l.rulesOf(r, s.net.CanSet)
	if err != nil {
		return nil, err
	}
	return l.withQueues(r, rules, s.treatments.Queue), nil
}

// writeSide writes the rules between one end host and its agent according to a layout, together
// with the rules more, and waits until the switches have them.
func (s *core) writeSide(ctx context.Context, ss *session, l *Layout, r agentapi.Role, options rule.ApplyOptions, more ...network.Rule) error {
	rules, err := s.rulesOf(l, r)
	if err != nil {
		return err
	}
	return s.rules.Apply(ctx, ss.key(r), rule.Program{Rules: append(rules, more...)}, options)
}

// abort tells the agents of to reset and forget a session. It skips nil agents.
func (s *core) abort(id agentapi.SessionID, of ...*agent) {
	of = slices.DeleteFunc(of, func(a *agent) bool { return a == nil })
	agents.Together(context.WithoutCancel(s.ctx), undoTimeout, of, func(ctx context.Context, _ int, a *agent) error {
		err := a.Client.Abort(ctx, id)
		if err != nil && control.CodeOf(err) != control.CodeNotFound {
			s.log.Debug("session could not be aborted", "agent", a.Name, "session", id, "error", err)
		}
		return nil
	})
}
