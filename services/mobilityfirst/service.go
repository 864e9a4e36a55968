package mobilityfirst

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/store"
)

// Name is the service's name: its path in the API, its owner of rules.
const Name = "mobilityfirst"

// What Options stand for that say nothing.
const (
	DefaultLease    = time.Minute
	DefaultMaxPaths = 16384
)

// MinLease is the shortest: hosts ask again 15 s before a lease ends.
const MinLease = 30 * time.Second

// MaxLease is the longest: hosts believe in no longer one.
const MaxLease = 5 * time.Minute

// leaseGrace is how much longer than its lease a path is there: its hosts count from when they have heard
// of it.
const leaseGrace = 10 * time.Second

// Options is what a Service works with.
type Options struct {
	Network kit.Network
	Rules   kit.Ledger
	Bus     *event.Bus
	Log     *slog.Logger
	// Metric is by what their routes are chosen.
	Metric network.Metric
	// Lease is how long a path is there unless it is asked for again, from MinLease to MaxLease.
	Lease time.Duration
	// Store is where nodes that are declared by the API are kept.
	Store store.Store
	// Configured are the nodes of the configuration, by name.
	Configured map[string]agents.AgentRecord
	// NodeTLS holds the controller's certificate and the CA of the nodes; nil for those of this machine. Dial connects to
	// them; nil for the ordinary way.
	NodeTLS *tls.Config
	Dial    control.Dialer
	// MaxPaths is how many paths there are at once, a quarter of them asked for from one switch, and half of
	// that from one port. Each has two rules at every switch that it passes.
	MaxPaths int
}

const (
	// workers look at signatures; maxBacklog of them may wait.
	workers, maxBacklog = 4, 1024
	// rethinkAfter is how long what changes in the network is gathered before paths are looked at.
	rethinkAfter = 20 * time.Millisecond
	// tidyEvery is how often it is looked what is over.
	tidyEvery = 5 * time.Second
)

// Service is MobilityFirst in the controller. Its methods may be called concurrently.
type Service struct {
	Options
	names   *names
	paths   *paths
	early   *early
	limits  *limits
	nodes   *nodes
	metrics *metrics
	backlog chan signed
	rethink kit.Loop // of the routes of paths
}

// New returns a Service that has not started yet.
func New(o Options) *Service {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Log = o.Log.With("service", Name)
	o.Lease, o.MaxPaths = cmp.Or(o.Lease, DefaultLease), cmp.Or(o.MaxPaths, DefaultMaxPaths)
	s := &Service{
		Options: o, names: newNames(), early: newEarly(), limits: newLimits(), backlog: make(chan signed, maxBacklog),
		rethink: kit.NewLoop(),
	}
	s.paths, s.nodes = newPaths(&s.Options), newNodes(&s.Options)
	s.metrics = newMetrics(s)
	return s
}

// Name is the service's name.
func (s *Service) Name() string { return Name }

// Nodes are the storage nodes, compute nodes and caches that are declared.
func (s *Service) Nodes() *kit.Collection[agents.AgentRecord] { return s.nodes.registry.Collection }

// Loaded is closed when it is known which nodes the store has.
func (s *Service) Loaded() <-chan struct{} { return s.Nodes().Loaded() }

// Run works until ctx ends. Rules stay in the switches.
func (s *Service) Run(ctx context.Context) error { return s.nodes.while(ctx, s.run) }

func (s *Service) run(ctx context.Context) error {
	for d, err := range s.Rules.EverySwitch(ctx, "unknown-labels", UnknownLabels) {
		s.Log.Warn("a switch does not take what ends frames with labels that are not there", "switch", d, "error", err)
	}
	all := tasks.New()
	defer all.Stop()
	defer s.paths.setups.Stop()
	for range workers {
		all.Start(s.work)
	}
	all.Start(func(ctx context.Context) {
		s.rethink.Run(ctx, rethinkAfter, 0, s.paths.reroute)
	})
	all.Start(func(ctx context.Context) {
		kit.NewLoop().Run(ctx, 0, tidyEvery, func(ctx context.Context) { s.paths.expire(ctx, time.Now()) })
	})
	all.Start(func(ctx context.Context) {
		kit.NewLoop().Run(ctx, 0, tidyEvery, func(context.Context) { s.names.sweep(time.Now()); s.early.sweep(time.Now()) })
	})
	// By then whoever uses a path from before has asked again.
	if tasks.Sleep(ctx, MaxLease+leaseGrace) == nil {
		s.Rules.Ready()
		<-ctx.Done()
	}
	return nil
}

// NetworkChanged tells the service of a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	switch e.Kind {
	case network.HostAdded, network.HostMoved:
		s.believed(place{e.Host.At, e.Host.MAC})
	case network.PortDown:
		s.names.leave(e.Port)
	case network.LinkDown, network.SwitchDown:
		s.rethink.Wake()
	default:
	}
}
