package bandwidth

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/guard"
	"github.com/sluice-net/sluice/qos/reserve"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/store"
)

// Bounds of the service.
const (
	// maxFlows bounds the flows, maxPlacing those that are being placed.
	maxFlows   = 16384
	maxPlacing = 256
	// holdFor is how long a first packet waits at most, placeFor how long its
	// placement may take.
	holdFor  = 3 * time.Second
	placeFor = 2 * time.Second
)

// Options is what a Service works with.
type Options struct {
	Network service.Network
	Rules   service.Ledger
	Store   store.Store
	Book    *reserve.Book
	// Guard holds flows of best effort to what is not promised.
	Guard *guard.Guard
	Log   *slog.Logger
	// Publish tells of events.
	Publish func(kind string, attrs any)
	// Interval is how often counters are read.
	Interval time.Duration
	// Configured are the definitions of the configuration, by name.
	Configured map[string]*Definition
}

// Service places critical flows: it finds them among first packets, and does what follows
// from changes of definitions, network and counters.
type Service struct {
	Options
	// Definitions say which traffic is critical.
	Definitions *service.Collection[*Definition]

	flows   *table
	plan    *planner
	asker   *asker
	placer  *placer
	metrics *metrics

	// tasks are the goroutines that Run waits for.
	tasks *tasks.Group
	// reviews looks for flows whose path has broken.
	reviews service.Loop
	ready   chan struct{}
	loaded  chan struct{}
}

// New returns a Service that has not started yet.
func New(o Options) *Service {
	s := &Service{
		Options: o, flows: newTable(), plan: &planner{o},
		tasks: tasks.New(), reviews: service.NewLoop(), ready: make(chan struct{}), loaded: make(chan struct{}),
	}
	s.Definitions = service.NewCollection(service.Options[*Definition]{
		Kind: service.Kind[*Definition]{
			Noun: "definition", Nouns: "definitions of critical traffic", Prefix: "qos/critical/", Event: "critical", Most: MaxDefinitions,
		},
		Store: o.Store, Log: o.Log, Publish: o.Publish, Changed: s.redefine,
	})
	s.metrics = newMetrics(s.flows, s.Book)
	o.Guard.Uses(s.heldBack, s.loaded)
	s.asker = &asker{Options: o, definitions: s.Definitions}
	s.placer = &placer{o, s.plan, &writer{o}, s.flows, s.metrics, s.tasks.Context()}
	return s
}

// Run works until ctx ends. Rules of flows stay in the switches.
func (s *Service) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.tasks.Cancel)
	defer stop()
	defer s.tasks.Stop()
	own := s.tasks.Context()
	err := s.Definitions.Load(own, s.Configured)
	if err == nil {
		err = s.placer.load(own, s.Definitions)
	}
	if err != nil {
		return fmt.Errorf("qos: %w", err)
	}
	close(s.loaded)
	s.placer.redeclare(own)
	s.asker.ask(own)
	s.Rules.Ready()
	close(s.ready)
	s.tasks.Start(s.Definitions.Run)
	s.tasks.Start(func(ctx context.Context) { s.reviews.Run(ctx, 0, 0, s.review) })
	service.NewLoop().Run(own, 0, s.Interval, s.keepUp)
	return nil
}

// Ready is closed when what was there before the start has been declared again.
func (s *Service) Ready() <-chan struct{} { return s.ready }

// Loaded is closed when what the store has is there.
func (s *Service) Loaded() <-chan struct{} { return s.loaded }

// NetworkChanged tells the service of a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	switch e.Kind {
	case network.HostRemoved: // hosts cause these at will
	case network.HostAdded: // so, too, but one that has been plugged in elsewhere is added there
		if s.flows.between(e.Host.MAC) {
			s.reviews.Wake()
		}
	default:
		s.reviews.Wake()
	}
}

// Removed is told of rules that a switch has removed because they were idle: the flow
// is over. It runs on the switch's goroutine.
func (s *Service) Removed(r network.Removed) {
	id, ok := strings.CutPrefix(r.Name, "flow/")
	if !ok {
		return
	}
	s.flows.mu.Lock()
	f := s.flows.byID[id]
	s.flows.mu.Unlock()
	if f != nil {
		s.start(func() { s.placer.end(f, "it was silent") })
	}
}

// Within lists the promises to flows of which all packets are among some.
func (s *Service) Within(matches []openflow.Match) (out []reserve.Key) {
	for _, f := range s.flows.all(func(f *flow) bool { return f.within(matches) }) {
		out = append(out, f.promise())
	}
	return out
}

// GiveWay ends the flows of which all packets are among some, because rules that win over
// theirs carry those from now on. to says whose rules they are.
func (s *Service) GiveWay(matches []openflow.Match, to string) {
	for _, f := range s.flows.placed() {
		if f.within(matches) {
			s.start(func() { s.placer.end(f, to+" carries it") })
		}
	}
}

// start runs f in a goroutine that Run waits for. It does nothing after the end.
func (s *Service) start(f func()) { s.tasks.Start(func(context.Context) { f() }) }
