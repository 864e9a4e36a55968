package classes

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
)

// Service manages the classes.
type Service struct {
	Options
	// Declared holds the classes that were accepted, by this controller or by another with
	// the same store.
	Declared *kit.Collection[*Class]

	classes *table
	plan    *planner
	queues  *queues
	placer  *placer
	monitor *monitor
	metrics *kit.Metrics

	tasks   *tasks.Group
	started time.Time
	loaded  chan struct{} // closed when the stored state has been read
	// updates runs the reconciliation of classes with the network.
	updates kit.Loop
}

// New returns a Service that has not started yet.
func New(o Options) *Service {
	s := &Service{Options: o, classes: newTable(o.Publish), tasks: tasks.New(), loaded: make(chan struct{}), updates: kit.NewLoop()}
	s.plan = &planner{Options: o, classes: s.classes}
	s.queues = &queues{o, s.classes, s.plan}
	s.placer = &placer{o, s.classes, s.plan, s.queues, kit.Records[record]{Store: o.Store, Prefix: placementPrefix, Plural: "placements of classes", Log: o.Log}}
	s.monitor = &monitor{o, s.classes, s.plan, s.queues}
	s.metrics = newMetrics(s.classes, s.plan)
	s.Declared = kit.NewCollection(kit.Options[*Class]{
		Kind:  kit.Kind[*Class]{Singular: "class", Plural: "classes of traffic", Prefix: "qos/class/", Event: "class", MaxItems: MaxClasses},
		Store: o.Store, Log: o.Log, Publish: o.Publish,
		Changed: func(ctx context.Context, changes []kit.Change[*Class]) {
			tasks.Each(changes, maxMoves, func(c kit.Change[*Class]) { s.reconcile(ctx, c.Name) })
		},
	})
	s.Treatments.Promise(&promiser{s.classes, s.loaded, s.updates})
	return s
}

// Loaded returns a channel that is closed once the stored state has been read.
func (s *Service) Loaded() <-chan struct{} { return s.loaded }

// Run runs the service until ctx ends. Queues and rules stay in the switches.
func (s *Service) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.tasks.Cancel)
	defer stop()
	defer s.tasks.Stop()
	s.started = time.Now()
	if err := s.load(s.tasks.Context()); err != nil {
		return fmt.Errorf("latency: %w", err)
	}
	s.Databases.Declare(s.queues.desiredState)
	close(s.loaded)
	s.tasks.Start(s.Declared.Run)
	s.Treatments.Changed()
	s.tasks.Start(func(ctx context.Context) { kit.NewLoop().Run(ctx, 0, s.Interval, s.monitor.measure) })
	s.wake()
	s.updates.Run(s.tasks.Context(), debounce, resync, s.update)
	return nil
}

// NetworkChanged informs the service of a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	switch e.Kind {
	case network.SwitchUp, network.PortUp, network.PortDown, network.LinkUp, network.LinkDown, network.HostMoved:
		s.wake()
	}
}

func (s *Service) wake() {
	s.updates.Wake()
	s.Databases.Touch()
}
