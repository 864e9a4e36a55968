package latency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/event"
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
	Bus     *event.Bus
	// Databases are those of the switches, which hold the queues.
	Databases Databases
	Log       *slog.Logger
	Settings  Settings
	// Configured are the classes of the configuration, by name.
	Configured map[string]*Class
	// Critical is for flows that classes may carry; it may be nil.
	Critical Critical
	// Treatments are where those who carry connections learn of classes; nil if nobody does.
	Treatments *network.Treatments
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
	// Declared are the classes that were accepted, by this controller or by another with the
	// same store.
	Declared *service.Collection[*Class]

	net      service.Network
	rules    service.Ledger
	book     *reserve.Book
	store    store.Store
	bus      *event.Bus
	log      *slog.Logger
	settings Settings
	fixed    map[string]*Class // what was configured at the start
	critical Critical
	tasks    *tasks.Group
	metrics  *service.Metrics
	started  time.Time
	loaded   chan struct{} // closed when what the store has is there
	baseline baseline
	// treatments are where those who carry connections learn of classes, by the index.
	treatments *network.Treatments
	index      atomic.Pointer[index]
	// placing keeps classes in step with the network.
	placing service.Loop
	// databases keep their queues.
	databases Databases

	mu       sync.Mutex
	lastDSCP int // place of the one given last, among the marks
	classes  map[string]*entry
	left     map[string]bool // classes of which a placement or rules are not gone yet
}

// New returns a Service that has not started yet.
func New(o Options) (*Service, error) {
	if o.Network == nil || o.Rules == nil || o.Store == nil || o.Book == nil || o.Databases == nil {
		return nil, errors.New("latency: a network, an owner of rules, a book, a store and the switches' databases are needed")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Service{
		net: o.Network, rules: o.Rules, book: o.Book, store: o.Store, bus: o.Bus, log: o.Log.With("service", OwnerName),
		settings: o.Settings.withDefaults(), fixed: o.Configured, critical: o.Critical, tasks: tasks.New(), loaded: make(chan struct{}), placing: service.NewLoop(), databases: o.Databases,
		classes: map[string]*entry{}, left: map[string]bool{},
	}
	s.metrics, s.treatments = newMetrics(s), o.Treatments
	s.Declared = collect(s, o)
	s.index.Store(&index{})
	s.treatments.Promise(s)
	return s, nil
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
	s.databases.Declare(s.inDatabase)
	close(s.loaded)
	s.tasks.Start(s.Declared.Run)
	s.treatments.Changed()
	s.tasks.Start(s.measure)
	s.wake()
	s.placing.Run(s.tasks.Context(), debounce, resync, s.keepUp)
	return nil
}

// publish puts an event on the bus.
func (s *Service) publish(kind string, attrs any) {
	if s.bus != nil {
		s.bus.Publish("qos.class."+kind, attrs)
	}
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
	s.databases.Touch()
}

// sortedClasses are the classes by name. The lock is held.
func (s *Service) sortedClasses() []*entry {
	out := make([]*entry, 0, len(s.classes))
	for _, name := range slices.Sorted(maps.Keys(s.classes)) {
		out = append(out, s.classes[name])
	}
	return out
}

func portRef(d openflow.DatapathID, port uint32) topology.PortRef {
	return topology.PortRef{Switch: d, Port: port}
}
