package plugin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/service/agents"
	"github.com/sluice-net/sluice/service/control"
	"github.com/sluice-net/sluice/sos/agentapi"
	"github.com/sluice-net/sluice/store"
)

// Name is the service's name: its path in the API, its keys in the store, its
// owner of rules.
const Name = "sos"

const (
	maxWorking  = 32
	maxHalfOpen = 384
)

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

// Service is SOS in the controller.
type Service struct {
	net     service.Network
	rules   service.Ledger
	store   store.Store
	bus     *event.Bus
	log     *slog.Logger
	loaded  chan struct{} // closed when what the store has is there
	strange lograte.Limit // lines that any client can cause
	opts    Options
	metrics *metrics
	// treatments are what others promise to the connections.
	treatments *network.Treatments

	// tasks are the goroutines that Run waits for; ctx, theirs, ends when Run ends.
	tasks *tasks.Group
	ctx   context.Context
	// changes serialises changes of the configuration, so that store and memory agree.
	changes sync.Mutex
	// entries are the whitelist's.
	entries *service.Collection[Entry]
	agents  *registry
	punts   *standing[edge]
	guards  *standing[guard]

	// view is what the packet-in handler looks at without a lock.
	view atomic.Pointer[view]
	// resync keeps punt rules and paths up to date.
	resync service.Loop

	// working holds a token for each set-up that is being done, halfOpen one
	// for each session whose client has not come to its agent yet.
	working, halfOpen chan struct{}

	mu        sync.Mutex
	running   bool
	began     time.Time // when the start was over
	config    Config
	whitelist Whitelist
	sessions  map[flow]*session
	byID      map[agentapi.SessionID]*session
	setups    int
	perClient map[string]int
	direct    *recent[flow]    // connections that go directly
	passed    *recent[opening] // connections that were carried to their end
	directs   directs
	costs     agents.Costs
	talk      talk
	pairs     map[string]*pair
	resets    map[flow]*reset
	// agentFlows are the sessions by what their agents send: from the agent's
	// session port, to the end host.
	agentFlows map[flow]*session
	history    history
	taken      takeover
	// untold are sessions that agents could not be told the end of.
	untold map[*agent][]agentapi.SessionID
	// carrying are the ports that those who promise treatments have been told of.
	carrying map[network.Carried]bool
	// orphans are sessions of which agents have told only that they ended.
	orphans map[agentapi.SessionID]*orphan
	// remembered are sessions that lasted when an earlier controller ended, outlived
	// those in the store that have ended.
	remembered []remembered
	outlived   []agentapi.SessionID
}

// view is an immutable extract of the state for the packet-in handler.
type view struct {
	enabled   bool
	whitelist Whitelist
	agents    map[string]bool // addresses of agents
	// sessionPorts are the ports that agents use for sessions alone, by address.
	sessionPorts map[netip.Addr]control.PortRange
}

// New returns a Service that has not started yet.
func New(o Options) (*Service, error) {
	if o.Network == nil || o.Rules == nil || o.Store == nil {
		return nil, errors.New("sos: a network, an owner of rules and a store are needed")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Settle == 0 {
		o.Settle = 10 * time.Second
	}
	if o.Linger == 0 {
		o.Linger = 200 * time.Millisecond
	}
	s := &Service{
		net: o.Network, rules: o.Rules, store: o.Store, bus: o.Bus, log: o.Log.With("service", Name), opts: o,
		resync: service.NewLoop(), loaded: make(chan struct{}), tasks: tasks.New(), config: DefaultConfig(),
		working: make(chan struct{}, maxWorking), halfOpen: make(chan struct{}, maxHalfOpen),
		sessions: map[flow]*session{}, byID: map[agentapi.SessionID]*session{},
		perClient: map[string]int{}, direct: newRecent[flow](), passed: newRecent[opening](), directs: directs{}, pairs: map[string]*pair{}, resets: map[flow]*reset{},
		agentFlows: map[flow]*session{},
		orphans:    map[agentapi.SessionID]*orphan{},
		untold:     map[*agent][]agentapi.SessionID{},
	}
	s.ctx, s.treatments = s.tasks.Context(), o.Treatments
	s.treatments.Subscribe(Name, s.wake)
	s.entries, s.agents = s.collectEntries(), s.newRegistry()
	s.punts, s.guards = s.newPunts(), s.newGuards()
	s.metrics = newMetrics(s)
	s.refreshView()
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
	s.start(s.entries.Run)
	s.start(s.agents.Run)
	s.start(s.archive)
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

// start runs f in a goroutine that Run waits for. It does nothing after the end.
func (s *Service) start(f func(context.Context)) bool { return s.tasks.Start(f) }

// wake has punt rules and paths looked at again.
func (s *Service) wake() { s.resync.Wake() }

// refreshView publishes the state for the packet-in handler. The lock is held,
// or nobody else knows the service yet.
func (s *Service) refreshView() {
	v := &view{enabled: s.config.Enabled, whitelist: s.whitelist, agents: map[string]bool{}, sessionPorts: map[netip.Addr]control.PortRange{}}
	for _, a := range s.agents.List() {
		st := a.State()
		for _, addr := range st.Addrs {
			v.agents[addr.String()] = true
			if st.Status.SessionPorts.First > 0 {
				v.sessionPorts[addr] = st.Status.SessionPorts
			}
		}
	}
	s.view.Store(v)
}

// publish puts an event on the bus.
func (s *Service) publish(kind string, attrs any) {
	if s.bus != nil {
		s.bus.Publish(Name+"."+kind, attrs)
	}
}

// NetworkChanged tells the service of a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	if e.Kind != network.HostRemoved {
		s.wake()
	}
	s.agents.NetworkChanged(e)
}
