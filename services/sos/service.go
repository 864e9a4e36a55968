package sos

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/store"
)

// Options holds what New needs.
type Options struct {
	Network kit.Network
	Rules   kit.Ledger
	Store   store.Store
	Bus     *event.Bus
	Log     *slog.Logger
	// AgentTLS holds the controller's certificate and the CA of the agents.
	AgentTLS *tls.Config
	// Dial connects to agents; nil means a TCP connection.
	Dial control.Dialer
	// ControlSubnets lists the subnets in which an agent that announces itself may have its control
	// address. The address from which it announces itself is always allowed.
	ControlSubnets []netip.Prefix
	// Settle is how long the service waits after a start for the switches of sessions that
	// it takes over.
	Settle time.Duration
	// Linger is how long the rules of a session stay after its agents are done. The end hosts have
	// acknowledged everything by then, but may repeat an acknowledgement.
	Linger time.Duration

	// Treatments holds the treatments that other services promise to connections; nil if
	// there are none.
	Treatments *network.Treatments
}

// Service is the controller's side of SOS. It consists of parts that share a core and one
// lock. Each part holds the state of one task and uses only the parts listed before it.
type Service struct {
	*core
	selection      *selection
	sessions       *sessions
	history        *history
	pairs          *pairs
	resets         *resets
	endings        *endings
	reconciler     *reconciler
	setups         *setups
	sharing        *sharing
	warming        *warming
	strayRules     *persistentRules[strayRules]
	takeoverResult takeover
	loaded         chan struct{} // closed when the stored state has been read
}

// New returns a Service that has not started yet.
func New(o Options) (*Service, error) {
	if o.Network == nil || o.Rules == nil || o.Store == nil {
		return nil, errors.New("sos: a network, an owner of rules and a store are needed")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Settle = cmp.Or(o.Settle, 10*time.Second)
	o.Linger = cmp.Or(o.Linger, 200*time.Millisecond)
	c := &core{
		net: o.Network, rules: o.Rules, store: o.Store, bus: o.Bus, log: o.Log.With("service", Name), opts: o, treatments: o.Treatments,
		resync: kit.NewLoop(), divide: kit.NewLoop(), warmUp: kit.NewLoop(), tasks: tasks.New(), config: DefaultConfig(),
	}
	c.ctx = c.tasks.Context()
	s := &Service{core: c, selection: newSelection(c), sessions: newSessions(c), strayRules: newStrayRules(c), loaded: make(chan struct{})}
	s.history = &history{core: c, sessions: s.sessions, orphans: map[agentapi.SessionID]*orphan{}}
	s.pairs = &pairs{core: c, all: map[string]*pair{}}
	s.resets = &resets{core: c, all: map[flow]*reset{}}
	s.endings = &endings{core: c, sessions: s.sessions, history: s.history, pairs: s.pairs, resets: s.resets, pendingAborts: map[*agent][]agentapi.SessionID{}}
	s.reconciler = &reconciler{core: c, sessions: s.sessions, pairs: s.pairs, endings: s.endings}
	s.setups = &setups{core: c, logLimit: rate.NewLimiter(maxLogged, maxLogged), sessions: s.sessions, history: s.history, pairs: s.pairs, endings: s.endings, reconciler: s.reconciler, active: make(chan struct{}, maxActiveSetups)}
	s.sharing = newSharing(c, s.sessions, s.pairs)
	s.warming = &warming{core: c, selection: s.selection, sessions: s.sessions, history: s.history, pairs: s.pairs, setups: s.setups}
	c.agents = s.newRegistry()
	c.metrics = newMetrics(s)
	c.treatments.Subscribe(Name, c.wake)
	s.selection.refresh()
	return s, nil
}

// Name returns the name of the service.
func (s *Service) Name() string { return Name }

// Loaded returns a channel that is closed once the stored state has been read.
func (s *Service) Loaded() <-chan struct{} { return s.loaded }

// Run runs the service until ctx ends. The rules of live sessions stay in the switches.
func (s *Service) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.tasks.Cancel)
	defer stop()
	defer s.agents.Close() // deferred first, so that it runs after all users of agents have ended
	defer s.tasks.Stop()
	if err := s.load(s.ctx); err != nil {
		return fmt.Errorf("sos: %w", err)
	}
	close(s.loaded)
	s.start(s.selection.entries.Run)
	s.start(s.agents.Run)
	s.start(s.history.run)
	s.takeOver(s.ctx)
	s.start(s.sharing.run)
	s.start(s.warming.run)
	s.mu.Lock()
	s.running, s.began = true, time.Now()
	s.mu.Unlock()
	s.reconcileLoop(s.ctx)
	s.mu.Lock()
	s.running = false
	s.mu.Unlock()
	return nil
}

// load reads the stored state and starts to follow the agents. It blocks changes of the
// configuration, because a change made meanwhile would reach only the store.
func (s *Service) load(ctx context.Context) error {
	s.selection.changes.Lock()
	defer s.selection.changes.Unlock()
	if err := s.selection.entries.Load(ctx, nil); err != nil {
		return err
	}
	if err := s.loadRest(ctx); err != nil {
		return err
	}
	return s.agents.Load(ctx)
}

// loadRest reads the stored state that is not kept in a collection.
func (s *Service) loadRest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return errors.Join(s.selection.load(ctx), s.strayRules.load(ctx), s.history.load(ctx))
}

// reconcileLoop keeps punt rules, the places of agents and the paths of sessions up to date
// with the network and the clock until ctx ends.
func (s *Service) reconcileLoop(ctx context.Context) {
	next := time.AfterFunc(0, s.wake)
	defer next.Stop()
	s.resync.Run(ctx, debounce, resyncEvery, func(ctx context.Context) {
		s.selection.applyPunts(ctx)
		s.agents.Refresh()
		s.strayRules.apply(ctx, s.wantedStrayRules(), network.ApplyOptions{})
		s.reconciler.reroute(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if at := s.selection.whitelist.NextChange(time.Now()); !at.IsZero() {
			next.Reset(time.Until(at))
		}
	})
}

// NetworkChanged informs the service of a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	if e.Kind != network.HostRemoved {
		s.wake()
	}
	s.agents.NetworkChanged(e)
}

// Errors returns the present problems as sorted lines, each with a cause and a remedy.
func (s *Service) Errors() []string {
	lines := append(s.serviceErrors(), s.agents.Problems()...)
	for dpid, text := range s.selection.punts.failures() {
		lines = append(lines, "switch "+dpid+" takes no punt rules: "+text+": connections from there go directly; make room in its tables, or leave it out of the path")
	}
	slices.Sort(lines)
	return lines
}

// serviceErrors returns the reasons why the service takes no connection although agents or
// whitelist entries exist.
func (s *Service) serviceErrors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, lines := time.Now(), []string{}
	active := slices.ContainsFunc(s.selection.whitelist, func(e Entry) bool { return e.Active(now) })
	switch {
	case len(s.agents.List())+len(s.selection.whitelist) == 0:
		return lines // SOS is not in use
	case !s.config.Enabled:
		lines = append(lines, "SOS is disabled: every new connection goes directly; \"sluice sos enable\"")
	case len(s.selection.whitelist) == 0:
		lines = append(lines, "the whitelist is empty: every connection goes directly; \"sluice sos whitelist add\" says which do not")
	case !active:
		lines = append(lines, fmt.Sprintf("none of the whitelist's %d entries is active now: every connection goes directly; look at the times in \"sluice sos whitelist list\"", len(s.selection.whitelist)))
	}
	if len(s.selection.whitelist) > 0 && len(s.agents.List()) < 2 {
		lines = append(lines, "fewer than two agents: every connection goes directly; add one near each end with \"sluice sos agents add\"")
	}
	return lines
}

// newRegistry returns an empty registry of agents.
func (s *Service) newRegistry() *registry {
	return agents.New(agents.Options[*agentapi.Client, agentapi.SessionRecord, agentapi.Live]{
		Service: Name, Network: s.net, Store: s.store, Log: s.log, Publish: s.publish,
		Certificate: s.opts.AgentTLS != nil, ControlSubnets: s.opts.ControlSubnets,
		Dial: func(r agents.AgentRecord) (*agentapi.Client, error) {
			return agentapi.NewClient(r.URL, s.opts.AgentTLS, s.opts.Dial)
		},
		Timing: func() (silent, deadAfter time.Duration) {
			c := s.settings()
			return time.Duration(c.SilentAfter), time.Duration(c.PeerTimeout)
		},
		Event: s.endings.agentEvent, Missed: s.endings.findMissed, Heard: s.endings.sendPendingAborts, Lost: s.endings.endSessionsOf,
		Peers: s.sessions.peers, Changed: s.agentsChanged,
	})
}

// agentsChanged updates the packet-in handler's snapshot after a change of the agents, and
// requests a reconciliation.
func (s *Service) agentsChanged() {
	s.mu.Lock()
	maps.DeleteFunc(s.endings.pendingAborts, func(a *agent, _ []agentapi.SessionID) bool { return s.agents.Get(a.Name) != a })
	s.selection.refresh()
	s.mu.Unlock()
	s.wake()
}
