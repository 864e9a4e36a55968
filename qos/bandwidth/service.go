package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
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
	Log     *slog.Logger
	// Publish tells of events; it may be nil.
	Publish func(kind string, attrs any)
	// Interval is how often counters are read.
	Interval time.Duration
	// Configured are the definitions of the configuration, by name.
	Configured map[string]*Definition
}

// Service places critical flows.
type Service struct {
	// Definitions say which traffic is critical.
	Definitions *service.Collection[*Definition]

	net      service.Network
	rules    service.Ledger
	store    store.Store
	book     *reserve.Book
	log      *slog.Logger
	publish  func(kind string, attrs any)
	interval time.Duration
	fixed    map[string]*Definition
	guard    *guard
	metrics  *metrics

	// tasks are the goroutines that Run waits for.
	tasks *tasks.Group
	// reviews looks for flows whose path has broken.
	reviews service.Loop
	ready   chan struct{}
	loaded  chan struct{}
	// punting is held while the rules for first packets are written.
	punting sync.Mutex

	mu      sync.Mutex
	flows   map[header]*flow
	byID    map[string]*flow
	placing int
	numbers numbers
	refused map[openflow.DatapathID]error // why a switch has no rules for first packets
	asked   network.Moving                // the hosts whose first packets come up at borders
}

// New returns a Service that has not started yet.
func New(o Options) (*Service, error) {
	if o.Network == nil || o.Rules == nil || o.Store == nil || o.Book == nil {
		return nil, errors.New("qos: a network, an owner of rules, a store and a book of promises are needed")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Publish == nil {
		o.Publish = func(string, any) {}
	}
	if o.Interval == 0 {
		o.Interval = 5 * time.Second
	}
	s := &Service{
		net: o.Network, rules: o.Rules, store: o.Store, book: o.Book, log: o.Log, publish: o.Publish, interval: o.Interval, fixed: o.Configured,
		tasks: tasks.New(), reviews: service.NewLoop(), ready: make(chan struct{}), loaded: make(chan struct{}),
		flows: map[header]*flow{}, byID: map[string]*flow{},
	}
	s.Definitions = s.collect(o)
	s.guard = newGuard(s)
	s.metrics = newMetrics(s)
	return s, nil
}

// Run works until ctx ends. Rules of flows stay in the switches.
func (s *Service) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.tasks.Cancel)
	defer stop()
	defer s.tasks.Stop()
	own := s.tasks.Context()
	if err := s.resume(own); err != nil {
		return fmt.Errorf("qos: %w", err)
	}
	s.rules.Ready()
	close(s.ready)
	s.tasks.Start(s.Definitions.Run)
	s.tasks.Start(func(ctx context.Context) { s.reviews.Run(ctx, 0, 0, s.review) })
	s.keepUp(own)
	return nil
}

// resume declares again what was there before the start.
func (s *Service) resume(ctx context.Context) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	close(s.loaded)
	s.redeclare(ctx)
	s.applyPunts(ctx)
	return nil
}

// Ready is closed when what was there before the start has been declared again.
func (s *Service) Ready() <-chan struct{} { return s.ready }

// Loaded is closed when what the store has is there.
func (s *Service) Loaded() <-chan struct{} { return s.loaded }

// NetworkChanged tells the service of a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	if e.Kind != network.HostAdded && e.Kind != network.HostRemoved {
		s.reviews.Wake()
	}
}

// keepUp reads counters, and does what follows from them.
func (s *Service) keepUp(ctx context.Context) {
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.observe(ctx)
			s.review(ctx)
			s.relieve(ctx)
			s.retry(ctx)
			s.guard.sweep(ctx)
			if len(s.Refusals()) > 0 {
				s.applyPunts(ctx)
			}
		}
	}
}

// all lists the flows that have been placed, those first that came first.
func (s *Service) all() []*flow {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*flow, 0, len(s.flows))
	for _, f := range s.flows {
		if f.state != StatePlacing {
			out = append(out, f)
		}
	}
	sortFlows(out)
	return out
}

// start runs f in a goroutine that Run waits for. It does nothing after the end.
func (s *Service) start(f func()) { s.tasks.Start(func(context.Context) { f() }) }
