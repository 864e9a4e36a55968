package cinema

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// New returns a Service that is not running yet.
func New(o Options) *Service {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Log = o.Log.With("service", Name)
	if !o.Media.IsValid() {
		o.Media = DefaultMedia
	}
	o.Share, o.Settle = cmp.Or(o.Share, DefaultShare), cmp.Or(o.Settle, defaultSettle)
	c := &core{Options: o, metrics: newMetrics(), tasks: tasks.New(), ready: make(chan struct{})}
	s := &Service{core: c, sources: newSources(c), viewers: newViewers(), admission: newAdmissionLimiter()}
	s.egress = s.newEgress()
	s.trees = newTreeManager(c, s.sources, s.viewers, s.egress)
	s.delivered = newDeliveryCounters(s.trees)
	c.Channels = kit.NewReconciler(kit.Options[Channel]{
		Kind: kit.Kind[Channel]{
			Singular: "channel", Plural: "channels", Prefix: Name + "/channels/", Event: "channel", MaxItems: MaxChannels,
			Decode: decode, Conflicts: conflicts, EventPayload: func(c Channel) any { return declared(&c) },
		},
		Store: o.Store, Log: o.Log, Publish: s.publish,
	}, &rules{o.Rules, s.trees}, nil)
	c.Channels.Place = s.trees.install
	c.Channels.Await = s.awaitNetwork
	o.Treatments.Subscribe(Name, c.Channels.Wake)
	s.thumbnails = gatewayapi.NewThumbnails(s.thumbnail)
	s.registerGauges()
	return s
}

// Run runs the service until ctx ends. Rules and groups stay in the switches.
func (s *Service) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.tasks.Cancel)
	defer stop()
	for d, err := range s.Rules.EverySwitch(ctx, "guard", func(d openflow.DatapathID) network.Program { return tree.Guard(d, s.Media) }) {
		s.Log.Warn("a switch refuses the guard that keeps strangers' packets out of channels", "switch", d, "error", err)
	}
	for d, err := range s.Rules.EverySwitch(ctx, "guard-by-ecn", func(d openflow.DatapathID) network.Program { return tree.GuardByECN(d, s.Media) }) {
		s.Log.Info("a switch refuses the rule that makes it forget channels; viewers who return soon may get theirs late", "switch", d, "error", err)
	}
	return s.sources.registry.While(ctx, func(ctx context.Context) error {
		return s.egress.While(ctx, func(ctx context.Context) error {
			defer s.tasks.Stop()
			s.trees.loadTrees(ctx)
			s.tasks.Start(s.trees.persist)
			s.tasks.Start(s.sources.run)
			return s.Channels.Run(ctx, s.Configured)
		})
	})
}

// NetworkChanged handles a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	s.sources.registry.NetworkChanged(e)
	s.egress.NetworkChanged(e)
	if e.Kind == network.SwitchUp {
		s.trees.retryMeters(e.Switch)
	}
	switch e.Kind { // the registries report gateways whose place in the network has changed
	case network.LinkDown:
		s.trees.linksChanged()
		s.repairChannels(e.Link.From)
	case network.SwitchDown, network.SwitchUp:
		s.trees.switchChanged(e.Switch, e.Kind == network.SwitchUp)
	case network.LinkUp:
		s.trees.linksChanged()
	default:
		return
	}
	s.Channels.Wake()
}

// settlePoll is the interval at which awaitNetwork checks the state after a start.
const settlePoll = 50 * time.Millisecond

// awaitNetwork waits, up to Options.Settle, until all gateways have reported and all links of
// restored trees are known again. Switches are not changed before it returns.
func (s *Service) awaitNetwork(ctx context.Context) {
	for _, x := range s.Channels.Items() {
		s.trees.restore(&x.Value)
	}
	settle, cancel := context.WithTimeout(ctx, s.Settle)
	defer cancel()
	s.Treatments.Await(settle)
	why := s.missing()
	for why != "" && tasks.Sleep(settle, settlePoll) == nil {
		why = s.missing()
	}
	if why != "" && ctx.Err() == nil {
		s.Log.Warn("start to manage channels before everything is known", "after", s.Settle, "unknown", why)
	}
	close(s.ready)
}

// missing says what the service does not know yet of the state before the controller's restart. It
// returns "" if nothing is missing.
func (s *Service) missing() string {
	for _, a := range s.sources.registry.List() {
		if !s.sources.hasReported(a.Name) {
			return "what ingress gateway " + a.Name + " has"
		}
		st := a.State()
		if _, _, err := s.place(&st); err != nil {
			return "where ingress gateway " + a.Name + " stands"
		}
	}
	for _, a := range s.egress.List() {
		if !s.viewers.hasReported(a.Name) {
			return "what egress gateway " + a.Name + " wants"
		}
		st := a.State()
		if _, _, err := s.place(&st); err != nil {
			return "where egress gateway " + a.Name + " stands"
		}
	}
	return s.trees.missingLink()
}

// repairChannels reroutes the channels of a link that has gone down. It does not wait for the
// next round over all channels, because viewers' pictures stand still.
func (s *Service) repairChannels(from network.PortRef) {
	for _, channel := range s.trees.startRepairs(from) {
		started := s.tasks.Start(func(ctx context.Context) {
			defer s.trees.repairDone(channel)
			ctx, cancel := context.WithTimeout(ctx, changeTimeout)
			defer cancel()
			_ = s.Channels.Reconcile(ctx, channel) // the channel's condition has the error
		})
		if !started {
			s.trees.repairDone(channel)
		}
	}
}

// Definition describes the service to the controller.
func Definition() kit.Definition {
	return kit.Definition{
		Name: Name, Doc: "The Cinema service: live channels to many viewers.",
		Section: func() config.Section { return DefaultSection() },
		New:     fromParts,
	}
}

// fromParts returns the service with the settings of the controller's configuration, or nil if it is
// not enabled there.
func fromParts(p kit.Parts) (kit.Service, error) {
	section := config.Of[*Section](p.Config)
	if !section.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	channels, faults := section.ParsedChannels()
	if err := faults.Err(); err != nil {
		return nil, err
	}
	owner, err := p.Network.Owner(Name, network.OwnerOptions{})
	if err != nil {
		return nil, fmt.Errorf("register the rules: %w", err)
	}
	agentTLS, err := p.AgentTLS(pki.RoleAgent)
	if err != nil {
		return nil, err
	}
	s := New(Options{
		Network: p.Network, Rules: owner, Store: p.Store, Bus: p.Bus, Log: p.Log, AgentTLS: agentTLS, Dial: p.DialAgent,
		ControlSubnets: section.ControlSubnets, Media: section.MediaAddress, Share: section.LinkShare, Configured: channels,
		Treatments: p.Treatments, LinkMACs: section.LinkMACs,
	})
	p.Network.Subscribe(s.NetworkChanged)
	p.Network.Doctor().ExamineAddresses(s.Needed)
	return s, nil
}

// Reload implements kit.Reloader: changed channels take effect without a restart.
func (s *Service) Reload(_ context.Context, next config.Section) (take func(context.Context) error, err error) {
	return s.Channels.Collection.Reload(next.(*Section).ParsedChannels())
}

// registerGauges adds the metrics whose values are computed when the metrics are requested.
func (s *Service) registerGauges() {
	s.sources.registry.Metrics(s.metrics.ingress)
	s.egress.Metrics(s.metrics.egress)
	s.metrics.own.Gauges("channels", "Channels.", nil, func(emit func(float64, ...string)) { emit(float64(len(s.Channels.Items()))) })
	s.metrics.own.Gauges("viewers", "Viewers, by egress gateway.", []string{"gateway"}, func(emit func(float64, ...string)) {
		for _, a := range s.egress.List() {
			emit(float64(s.viewers.countAt(a.Name)), a.Name)
		}
	})
}
