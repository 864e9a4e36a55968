package latency

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/reserve"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/store"
)

// OwnerName is the name of the service's owner of rules.
const OwnerName = "qos-latency"

// MaxClasses bounds the classes.
const MaxClasses = 4096

// Options is what a Service works with.
type Options struct {
	Network service.Network
	Rules   service.Ledger
	Book    *reserve.Book
	Store   store.Store
	Log     *slog.Logger
	// Publish tells of events.
	Publish func(kind string, attrs any)
	// Databases are those of the switches, which hold the queues.
	Databases Databases
	// Configured are the classes of the configuration, by name.
	Configured map[string]*Class
	// Critical is for flows that classes may carry.
	Critical Critical
	// Treatments are where those who carry connections learn of classes; nil if nobody does.
	Treatments *network.Treatments
	// Quota is the share of a link's capacity that a class has guaranteed which names no
	// rate.
	Quota float64
	// Interval is the time between two readings of counters.
	Interval time.Duration
	// Settle is how long after a start paths are left as they were, until the network has
	// been discovered again.
	Settle time.Duration
	// OnConnect gives every port its bucket when a switch connects; otherwise a port gets
	// it with the first class that leaves by it.
	OnConnect bool
}

// Critical are flows that are promised bandwidth by others than this service. Rules of
// classes win over theirs.
type Critical interface {
	// Within lists the promises to those of which all packets are among some.
	Within([]openflow.Match) []reserve.Key
	// GiveWay ends those: a class carries them. to says which.
	GiveWay(m []openflow.Match, to string)
}

// Service keeps the classes.
type Service struct {
	Options
	// Declared are the classes that were accepted, by this controller or by another with the
	// same store.
	Declared *service.Collection[*Class]

	classes *table
	plan    *planner
	queues  *queues
	placer  *placer
	monitor *monitor
	metrics *service.Metrics

	tasks   *tasks.Group
	started time.Time
	loaded  chan struct{} // closed when what the store has is there
	// placing keeps classes in step with the network.
	placing service.Loop
}

// New returns a Service that has not started yet.
func New(o Options) *Service {
	s := &Service{Options: o, classes: newTable(o.Publish), tasks: tasks.New(), loaded: make(chan struct{}), placing: service.NewLoop()}
	s.plan = &planner{Options: o, classes: s.classes}
	s.queues = &queues{o, s.classes, s.plan}
	s.placer = &placer{o, s.classes, s.plan, s.queues}
	s.monitor = &monitor{o, s.classes, s.plan, s.queues}
	s.metrics = newMetrics(s.classes, s.plan)
	s.Declared = service.NewCollection(service.Options[*Class]{
		Kind:  service.Kind[*Class]{Noun: "class", Nouns: "classes of traffic", Prefix: "qos/class/", Event: "class", Most: MaxClasses},
		Store: o.Store, Log: o.Log, Publish: o.Publish,
		Changed: func(ctx context.Context, changes []service.Change[*Class]) {
			tasks.Each(changes, movers, func(c service.Change[*Class]) { s.reconcile(ctx, c.Name) })
		},
	})
	s.Treatments.Promise(&promiser{s.classes, s.loaded, s.placing})
	return s
}

// Loaded is closed when what the store has is there.
func (s *Service) Loaded() <-chan struct{} { return s.loaded }

// Run works until ctx ends. Queues and rules stay in the switches.
func (s *Service) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.tasks.Cancel)
	defer stop()
	defer s.tasks.Stop()
	s.started = time.Now()
	if err := s.load(s.tasks.Context()); err != nil {
		return fmt.Errorf("latency: %w", err)
	}
	s.Databases.Declare(s.queues.want)
	close(s.loaded)
	s.tasks.Start(s.Declared.Run)
	s.Treatments.Changed()
	s.tasks.Start(func(ctx context.Context) { service.NewLoop().Run(ctx, 0, s.Interval, s.monitor.measure) })
	s.wake()
	s.placing.Run(s.tasks.Context(), debounce, resync, s.keepUp)
	return nil
}

// NetworkChanged tells the service of a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	switch e.Kind {
	case network.SwitchUp, network.PortUp, network.PortDown, network.LinkUp, network.LinkDown, network.HostMoved:
		s.wake()
	}
}

func (s *Service) wake() {
	s.placing.Wake()
	s.Databases.Touch()
}

func portRef(d openflow.DatapathID, port uint32) topology.PortRef {
	return topology.PortRef{Switch: d, Port: port}
}
