package critical

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// Service places critical flows. It finds them among first packets, and handles changes of
// definitions, network and counters.
type Service struct {
	Options
	// Definitions holds the definitions of critical traffic.
	Definitions *kit.Collection[*Definition]

	flows   *table
	plan    *planner
	punts   *puntInstaller
	placer  *placer
	metrics *metrics

	// tasks holds the goroutines that Run waits for.
	tasks *tasks.Group
	// reviews runs the search for flows whose path is broken.
	reviews kit.Loop
	ready   chan struct{}
	loaded  chan struct{}
}

// New returns a Service that has not started yet.
func New(o Options) *Service {
	s := &Service{
		Options: o, flows: newTable(), plan: &planner{o},
		tasks: tasks.New(), reviews: kit.NewLoop(), ready: make(chan struct{}), loaded: make(chan struct{}),
	}
	s.Definitions = kit.NewCollection(kit.Options[*Definition]{
		Kind: kit.Kind[*Definition]{
			Singular: "definition", Plural: "definitions of critical traffic", Prefix: "qos/critical/", Event: "critical", MaxItems: MaxDefinitions,
		},
		Store: o.Store, Log: o.Log, Publish: o.Publish, Changed: s.definitionsChanged,
	})
	s.metrics = newMetrics(s.flows, s.Book)
	o.Guard.AddUser(s.meteredLinks, s.loaded)
	s.punts = &puntInstaller{Options: o, definitions: s.Definitions}
	s.placer = &placer{
		Options: o, plan: s.plan, rules: &writer{o}, flows: s.flows, metrics: s.metrics, ctx: s.tasks.Context(),
		records: kit.Records[stored]{Store: o.Store, Prefix: flowPrefix, Plural: "critical flows", Log: o.Log, MaxItems: maxFlows},
	}
	return s
}

// Run runs the service until ctx ends. Rules of flows stay in the switches.
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
	s.punts.install(own)
	s.Rules.Ready()
	close(s.ready)
	s.tasks.Start(s.Definitions.Run)
	s.tasks.Start(func(ctx context.Context) { s.reviews.Run(ctx, 0, 0, s.review) })
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
	case network.HostRemoved: // hosts can cause these events at will
	case network.HostAdded: // hosts can cause this event, too, but it also shows that a host was plugged in elsewhere
		if s.flows.between(e.Host.MAC) {
			s.reviews.Wake()
		}
	default:
		s.reviews.Wake()
	}
}

// Removed handles a rule that a switch has removed because it was idle. The rule's flow is then
// over. It runs on the switch's goroutine.
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

// Within returns the keys of the promises to those flows all of whose packets the matches cover.
func (s *Service) Within(matches []openflow.Match) (out []reserve.Key) {
	for _, f := range s.flows.all(func(f *flow) bool { return f.isWithin(matches) }) {
		out = append(out, f.promiseKey())
	}
	return out
}

// GiveWay ends the flows all of whose packets the matches cover, because rules that win over theirs
// forward these packets from now on. to names the owner of those rules.
func (s *Service) GiveWay(matches []openflow.Match, to string) {
	for _, f := range s.flows.placed() {
		if f.isWithin(matches) {
			s.start(func() { s.placer.end(f, to+" carries it") })
		}
	}
}

// start runs f in a goroutine that Run waits for. It does nothing after Run has ended.
func (s *Service) start(f func()) { s.tasks.Start(func(context.Context) { f() }) }
