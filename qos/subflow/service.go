package subflow

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/qos/guard"
	"github.com/sluice-net/sluice/qos/reserve"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/store"
)

// Owner is the name under which the rules of subflows stand in the ledger.
const Owner = "qos-subflow"

// Bounds of the service.
const (
	// maxSubflows bounds the subflows, maxPlacing those that are being placed, maxPlacingEach
	// those of them that have come in by one port: others have their turn beside it.
	maxSubflows    = 8192
	maxPlacing     = 256
	maxPlacingEach = 32
	// placeFor is how long a placement may take, and how long taking back one that has failed; a SYN
	// waits for both, or it would go on with the mark.
	placeFor = 2 * time.Second
	holdFor  = 2*placeFor + time.Second
	// heldWithin is how soon subflows are held back on a link where something has been promised.
	heldWithin = 20 * time.Millisecond
)

// Settings are what an operator chooses.
type Settings struct {
	// Enabled has SYNs with the mark come to the controller.
	Enabled bool
	// DSCP is the mark of SYNs that join a connection.
	DSCP uint8
	// Paths is how many paths a connection has at most; more subflows share them.
	Paths int
	// Most is how many subflows that come in by one port are placed at once.
	Most int
	// Idle is how long a subflow is silent until it is taken for over, in whole seconds.
	Idle time.Duration
}

// Options is what a Service works with.
type Options struct {
	Settings
	Network service.Network
	Rules   service.Ledger
	Store   store.Store
	Book    *reserve.Book
	// Guard holds subflows to what promises leave.
	Guard *guard.Guard
	Log   *slog.Logger
	// Publish tells of events.
	Publish func(kind string, attrs any)
	// Interval is how often counters are read.
	Interval time.Duration
	// Sampled has large connections of plain TCP placed, too; nil for not.
	Sampled Sampled
}

// Service places subflows.
type Service struct {
	Options
	flows   *table
	counts  *counts
	noisy   lograte.Limit
	placer  *placer
	metrics *metrics

	tasks   *tasks.Group
	reviews service.Loop
	// promises looks for subflows that have to be held back, or no more.
	promises service.Loop
	ready    chan struct{}
	loaded   chan struct{}
}

// New returns a Service that has not started yet.
func New(o Options) *Service {
	s := &Service{
		Options: o, flows: newTable(o.Most), counts: newCounts(), tasks: tasks.New(), reviews: service.NewLoop(), promises: service.NewLoop(), ready: make(chan struct{}), loaded: make(chan struct{}),
	}
	s.metrics = newMetrics(s.flows)
	o.Guard.Uses(s.heldBack, s.loaded)
	o.Book.OnChange(s.promises.Wake)
	s.placer = &placer{Options: o, choice: newChoice(s.flows, o.Book, o.Paths, o.Interval), metrics: s.metrics, ctx: s.tasks.Context(), promises: s.promises}
	return s
}

// Run works until ctx ends. Rules of subflows stay in the switches.
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
		s.ask(own)
	} else {
		each(s.flows.all(), func(f *subflow) { s.placer.end(f, "subflows are no longer placed") })
	}
	s.Rules.Ready()
	close(s.ready)
	s.tasks.Start(func(ctx context.Context) { s.reviews.Run(ctx, 0, 0, s.review) })
	s.tasks.Start(func(ctx context.Context) { s.promises.Run(ctx, heldWithin, s.Interval, s.holdBack) })
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
	case network.HostRemoved, network.HostChanged, network.HostRefused: // hosts cause these at will
	case network.HostAdded: // so, too, but one that has been plugged in elsewhere is added there
		if s.flows.between(e.Host.MAC) {
			s.reviews.Wake()
		}
	default:
		s.reviews.Wake()
	}
}

// Removed is told of rules that a switch has removed because they were idle: the subflow is
// over. It runs on the switch's goroutine.
func (s *Service) Removed(r network.Removed) {
	if id, ok := strings.CutPrefix(r.Name, keyPrefix); ok {
		if f := s.flows.named(id); f != nil {
			s.tasks.Start(func(context.Context) { s.placer.end(f, "it was silent") })
		}
	}
}
