package plugin

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/service/control"
	"github.com/sluice-net/sluice/sos/agentapi"
	"github.com/sluice-net/sluice/store"
)

// Name is the service's name: its path in the API, its keys in the store, its
// owner of rules.
const Name = "sos"

// Options is what a Service works with.
type Options struct {
	Network service.Network
	Rules   service.Ledger
	Store   store.Store
	Bus     *event.Bus
	Log     *slog.Logger
	// AgentTLS holds the controller's certificate and the CA of the agents.
	AgentTLS *tls.Config
	// Dial connects to agents; nil for the ordinary way.
	Dial control.Dialer
	// ControlSubnets are those in which agents that announce themselves may have
	// their control address, besides the address that they do it from.
	ControlSubnets []netip.Prefix
	// Settle is how long after a start the service waits for the switches of
	// sessions that are being taken over.
	Settle time.Duration
	// Linger is how long a session's rules stay after its agents are done: their end
	// hosts have acknowledged everything then, but may say so once more.
	Linger time.Duration

	// Treatments are what others promise to the connections; nil if nobody does.
	Treatments *network.Treatments
}

// Service is SOS in the controller: parts that share a core, and one lock. Each has the
// state of one idea, and knows those before it.
type Service struct {
	*core
	selection *selection
	sessions  *sessions
	history   *history
	pairs     *pairs
	resets    *resets
	endings   *endings
	keeper    *keeper
	setups    *setups
	guards    *standing[guard]
	taken     takeover
	loaded    chan struct{} // closed when what the store has is there
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
		resync: service.NewLoop(), tasks: tasks.New(), config: DefaultConfig(),
	}
	c.ctx = c.tasks.Context()
	s := &Service{core: c, selection: newSelection(c), sessions: newSessions(c), guards: newGuards(c), loaded: make(chan struct{})}
	s.history = &history{core: c, sessions: s.sessions, orphans: map[agentapi.SessionID]*orphan{}}
	s.pairs = &pairs{core: c, all: map[string]*pair{}}
	s.resets = &resets{core: c, all: map[flow]*reset{}}
	s.endings = &endings{core: c, sessions: s.sessions, history: s.history, pairs: s.pairs, resets: s.resets, untold: map[*agent][]agentapi.SessionID{}}
	s.keeper = &keeper{core: c, sessions: s.sessions, pairs: s.pairs, endings: s.endings}
	s.setups = &setups{core: c, sessions: s.sessions, history: s.history, pairs: s.pairs, endings: s.endings, keeper: s.keeper, working: make(chan struct{}, maxWorking)}
	c.agents = s.newRegistry()
	c.metrics = newMetrics(s)
	c.treatments.Subscribe(Name, c.wake)
	s.selection.refresh()
	return s, nil
}

// Name is the service's name.
func (s *Service) Name() string { return Name }

// Loaded is closed when what the store has is there.
func (s *Service) Loaded() <-chan struct{} { return s.loaded }

// Run works until ctx ends. Rules of live sessions stay in the switches.
func (s *Service) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.tasks.Cancel)
	defer stop()
	defer s.agents.Close() // when nothing that may speak to an agent runs any more
	defer s.tasks.Stop()
	if err := s.load(s.ctx); err != nil {
		return fmt.Errorf("sos: %w", err)
	}
	close(s.loaded)
	s.start(s.selection.entries.Run)
	s.start(s.agents.Run)
	s.start(s.history.run)
	s.takeOver(s.ctx)
	s.mu.Lock()
	s.running, s.began = true, time.Now()
	s.mu.Unlock()
	s.keepUp(s.ctx)
	s.mu.Lock()
	s.running = false
	s.mu.Unlock()
	return nil
}

// load reads what the store has and starts to follow the agents. Changes of the
// configuration wait: one made in between would be in the store alone.
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

// loadRest reads what is not a collection.
func (s *Service) loadRest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return errors.Join(s.selection.load(ctx), s.guards.load(ctx), s.history.load(ctx))
}

// keepUp keeps punt rules, agents' places and sessions' paths in step with the
// network and the clock until ctx ends.
func (s *Service) keepUp(ctx context.Context) {
	next := time.AfterFunc(0, s.wake)
	defer next.Stop()
	s.resync.Run(ctx, debounce, resyncEvery, func(ctx context.Context) {
		s.selection.applyPunts(ctx)
		s.agents.Refresh()
		s.guards.keep(ctx, s.wantedGuards(), network.ApplyOptions{})
		s.keeper.reroute(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if at := s.selection.whitelist.NextChange(time.Now()); !at.IsZero() {
			next.Reset(time.Until(at))
		}
	})
}

// NetworkChanged tells the service of a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	if e.Kind != network.HostRemoved {
		s.wake()
	}
	s.agents.NetworkChanged(e)
}
