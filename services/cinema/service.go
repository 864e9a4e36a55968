package cinema

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/tree"
	"github.com/sluice-net/sluice/store"
)

// Name is the service's name in the API, in the keys of the store, and as the owner of rules.
const Name = "cinema"

// Defaults of Options.
const (
	DefaultShare  = 0.5
	defaultSettle = 10 * time.Second
)

// DefaultMedia is the default destination address of channels' datagrams (RFC 2544).
var DefaultMedia = netip.AddrFrom4([4]byte{198, 19, 255, 1})

// Options holds what a Service needs.
type Options struct {
	Network kit.Network
	Rules   Owner
	Store   store.Store
	Bus     *event.Bus
	Log     *slog.Logger
	// AgentTLS holds the controller's certificate and the CA of the gateways; it is nil if they
	// run on this machine. Dial connects to gateways; nil is the default dialer.
	AgentTLS *tls.Config
	Dial     control.Dialer
	// ControlSubnets are the subnets in which a gateway that announces itself may have its
	// control address, besides the address from which it announces itself.
	ControlSubnets []netip.Prefix
	// Media is the destination address of channels' datagrams. No host has it.
	Media netip.Addr
	// Share is the share of each link that channels may take, from 0 to 1.
	Share float64
	// LinkMACs makes channels cross each link with a source address of its own.
	LinkMACs bool
	// Settle is how long the service waits after a start for the gateways and switches that it
	// knew before.
	Settle time.Duration
	// Treatments is the registry of what other services promise to flows; nil if no service
	// does.
	Treatments *network.Treatments
	// Configured holds the channels of the configuration, by name.
	Configured map[string]Channel
}

// Owner is the service's part of the ledger of rules, such as a *network.Owner.
type Owner interface {
	kit.Ledger
	GroupID(number uint16) uint32
}

// core holds what all parts of the service share.
type core struct {
	Options
	Channels *kit.Reconciler[Channel]

	metrics     *metrics
	warnLimiter lograte.Limit // limits log lines that gateways can cause
	tasks       *tasks.Group
	ready       chan struct{} // closed when awaitNetwork has returned
}

// publish publishes an event on the bus.
func (c *core) publish(kind string, attrs any) {
	if c.Bus != nil {
		c.Bus.Publish(Name+"."+kind, attrs)
	}
}

// Service is Cinema in the controller. Its parts share a core, and each part uses only those
// listed before it.
type Service struct {
	*core
	sources   *sources
	viewers   *viewers
	egress    *egressRegistry
	trees     *treeManager
	admission *admissionLimiter

	delivered  *deliveryCounters
	thumbnails *gatewayapi.Thumbnails
}

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
	c := &core{Options: o, tasks: tasks.New(), ready: make(chan struct{})}
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
	c.metrics = newMetrics(s)
	return s
}

// Name returns the service's name.
func (s *Service) Name() string { return Name }

// Loaded returns a channel that is closed once the stored channels have been read.
func (s *Service) Loaded() <-chan struct{} { return s.Channels.Loaded() }

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
	switch e.Kind { // the registries report changed places of gateways
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

// Needed lists the data addresses of gateways that the network must be able to reach.
func (s *Service) Needed() []diagnosis.Needed {
	return append(s.sources.registry.Needed(Name), s.egress.Needed(Name)...)
}
