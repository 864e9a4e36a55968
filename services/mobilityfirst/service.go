package mobilityfirst

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
)

// Service is the controller's side of MobilityFirst. Its methods may be called concurrently.
type Service struct {
	Options
	names   *names
	paths   *paths
	early   *earlyMessages
	limits  limits
	nodes   *nodes
	metrics *metrics
	backlog chan unverified
}

// New returns a Service that has not started yet.
func New(o Options) *Service {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Log = o.Log.With("service", Name)
	o.Lease, o.MaxPaths = cmp.Or(o.Lease, DefaultLease), cmp.Or(o.MaxPaths, DefaultMaxPaths)
	s := &Service{
		Options: o, names: newNames(), early: newEarly(), limits: newLimits(), backlog: make(chan unverified, maxBacklog),
	}
	s.paths, s.nodes = newPaths(&s.Options), newNodes(&s.Options)
	s.metrics = newMetrics(s)
	return s
}

// Name returns the service's name.
func (s *Service) Name() string { return Name }

// Nodes returns the declared storage nodes, compute nodes and caches.
func (s *Service) Nodes() *kit.Collection[agents.AgentRecord] { return s.nodes.registry.Collection }

// Loaded returns a channel that is closed once the declared nodes have been read from the store.
func (s *Service) Loaded() <-chan struct{} { return s.Nodes().Loaded() }

// Run runs the service until ctx ends. Its rules stay in the switches.
func (s *Service) Run(ctx context.Context) error { return s.nodes.run(ctx, s.run) }

func (s *Service) run(ctx context.Context) error {
	for d, err := range s.Rules.EverySwitch(ctx, "unknown-labels", UnknownLabels) {
		s.Log.Warn("cannot install the rule that drops frames with unknown labels", "switch", d, "error", err)
	}
	all := tasks.New()
	defer all.Stop()
	for range workers {
		all.Start(s.work)
	}
	all.Start(func(ctx context.Context) { _ = s.paths.flows.Run(ctx) }) // it can fail only to read stored paths
	all.Start(func(ctx context.Context) {
		kit.NewLoop().Run(ctx, 0, sweepInterval, func(context.Context) { s.names.expire(time.Now()); s.early.expire(time.Now()) })
	})
	// After this time every host that uses a path from before the start has requested the path
	// again.
	if tasks.Sleep(ctx, MaxLease+leaseGrace) == nil {
		s.Rules.Ready()
		<-ctx.Done()
	}
	return nil
}

// NetworkChanged handles a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	switch e.Kind {
	case network.HostAdded, network.HostMoved:
		s.hostPlaced(place{e.Host.At, e.Host.MAC})
	case network.PortDown:
		s.names.portDown(e.Port)
	case network.LinkDown, network.SwitchDown:
		s.paths.flows.Wake()
	default:
	}
}
