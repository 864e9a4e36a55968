package subflows

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
)

// Service places further subflows of MPTCP connections. It finds their SYNs among packets, and
// handles changes of network and counters.
type Service struct {
	Options
	flows     *table
	counts    *joinCounter
	warnLimit lograte.Limit
	placer    *placer
	metrics   *metrics

	tasks   *tasks.Group
	reviews kit.Loop
	// promises runs the update of the meters that subflows pass.
	promises kit.Loop
	ready    chan struct{}
	loaded   chan struct{}
}

// New returns a Service that has not started yet.
func New(o Options) *Service {
	s := &Service{
		Options: o, flows: newTable(o.Most), counts: newJoinCounter(), tasks: tasks.New(), reviews: kit.NewLoop(), promises: kit.NewLoop(), ready: make(chan struct{}), loaded: make(chan struct{}),
	}
	s.metrics = newMetrics(s.flows)
	o.Guard.AddUser(s.meteredLinks, s.loaded)
	o.Book.OnRateChange(s.promises.Wake)
	s.placer = &placer{
		Options: o, chooser: newChoice(s.flows, o.Book, o.Paths, o.Interval), metrics: s.metrics, ctx: s.tasks.Context(), promises: s.promises, watches: kit.NewLoop(),
		records: kit.Records[stored]{Store: o.Store, Prefix: storePrefix, Plural: "subflows", Log: o.Log, MaxItems: maxSubflows},
	}
	return s
}

// Run runs the service until ctx ends. Rules of subflows stay in the switches.
func (s *Service) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.tasks.Cancel)
	defer stop()
	defer s.tasks.Stop()
	own := s.tasks.Context()
	if err := s.placer.load(own); err != nil {
		return fmt.Errorf("subflows: %w", err)
	}
	close(s.loaded)
	if s.Enabled {
		s.placer.redeclare(own)
		s.installPunts(own)
	} else {
		each(s.flows.all(), func(f *subflow) { s.placer.end(f, "subflows are no longer placed") })
	}
	s.Rules.Ready()
	close(s.ready)
	s.tasks.Start(func(ctx context.Context) { s.reviews.Run(ctx, 0, 0, s.review) })
	s.tasks.Start(func(ctx context.Context) { s.promises.Run(ctx, meterDelay, s.Interval, s.updateAllMeters) })
	s.tasks.Start(func(ctx context.Context) { s.placer.watches.Run(ctx, 0, 0, s.watch) })
	kit.NewLoop().Run(own, 0, s.Interval, s.update)
	return nil
}

// Ready returns a channel that is closed once the state from before the start has been
// declared again.
func (s *Service) Ready() <-chan struct{} { return s.ready }

// Loaded returns a channel that is closed once the stored state has been read.
func (s *Service) Loaded() <-chan struct{} { return s.loaded }

// NetworkChanged informs the service of a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	switch e.Kind {
	case network.HostRemoved, network.HostChanged, network.HostRefused: // hosts can cause these events at will
	case network.HostAdded: // hosts can cause this event, too, but it also shows that a host was plugged in elsewhere
		if s.flows.between(e.Host.MAC) {
			s.reviews.Wake()
		}
	default:
		s.reviews.Wake()
	}
}

// Removed handles a rule that a switch has removed because it was idle. The rule's subflow is then
// over. It runs on the switch's goroutine.
func (s *Service) Removed(r network.Removed) {
	if id, ok := strings.CutPrefix(r.Name, keyPrefix); ok {
		if f := s.flows.named(id); f != nil {
			s.tasks.Start(func(context.Context) { s.placer.end(f, "it was silent") })
		}
	}
}
