package plugin

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/cinema/tree"
	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/service/control"
	"github.com/sluice-net/sluice/store"
)

// Name is the service's name: its path in the API, its keys in the store, its owner of rules.
const Name = "cinema"

// What Options stand for that say nothing.
const (
	DefaultShare  = 0.5
	defaultSettle = 10 * time.Second
)

// DefaultMedia is the address to which channels' datagrams go unless configured (RFC 2544).
var DefaultMedia = netip.AddrFrom4([4]byte{198, 19, 255, 1})

// Options is what a Service works with.
type Options struct {
	Network service.Network
	Rules   Owner
	Store   store.Store
	Bus     *event.Bus
	Log     *slog.Logger
	// AgentTLS holds the controller's certificate and the CA of the gateways; nil for those
	// of this machine. Dial connects to them; nil for the ordinary way.
	AgentTLS *tls.Config
	Dial     control.Dialer
	// ControlSubnets are those in which gateways that announce themselves may have their
	// control address, besides the address that they do it from.
	ControlSubnets []netip.Prefix
	// Media is the address to which channels' datagrams go. No host has it.
	Media netip.Addr
	// Share is what of each link channels may take, from 0 to 1.
	Share float64
	// LinkMACs has channels cross each link from a source address of its own.
	LinkMACs bool
	// Settle is how long after a start the service waits for the gateways and switches that
	// it knew.
	Settle time.Duration
	// Treatments are where it is known what others promise to channels; nil if nobody does.
	Treatments *network.Treatments
	// Configured are the channels of the configuration, by name.
	Configured map[string]Channel
}

// Owner is the service's part of the ledger of rules; a *network.Owner.
type Owner interface {
	service.Ledger
	GroupID(number uint16) uint32
}

// core is what all parts of the service share.
type core struct {
	Options
	Channels *service.Reconciler[Channel]

	metrics *metrics
	strange lograte.Limit // lines that gateways can cause
	tasks   *tasks.Group
	started chan struct{} // closed when viewers are what gateways want
}

// publish puts an event on the bus.
func (c *core) publish(kind string, attrs any) {
	if c.Bus != nil {
		c.Bus.Publish(Name+"."+kind, attrs)
	}
}

// Service is Cinema in the controller: parts that share a core. Each knows those before it.
type Service struct {
	*core
	sources *sources
	viewers *viewers
	egress  *egressRegistry
	ways    *ways
	gates   *doors

	delivered  *deliveries
	thumbnails *gatewayapi.Thumbnails
}

// New returns a Service that has not started yet.
func New(o Options) *Service {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Log = o.Log.With("service", Name)
	if !o.Media.IsValid() {
		o.Media = DefaultMedia
	}
	o.Share, o.Settle = cmp.Or(o.Share, DefaultShare), cmp.Or(o.Settle, defaultSettle)
	c := &core{Options: o, tasks: tasks.New(), started: make(chan struct{})}
	s := &Service{core: c, sources: newSources(c), viewers: newViewers(), gates: newDoors()}
	s.egress = s.newEgress()
	s.ways = newWays(c, s.sources, s.viewers, s.egress)
	s.delivered = newDeliveries(s.ways)
	c.Channels = service.NewReconciler(service.Options[Channel]{
		Kind: service.Kind[Channel]{
			Noun: "channel", Nouns: "channels", Prefix: Name + "/channels/", Event: "channel", Most: MaxChannels,
			Decode: decode, Contradicts: contradicts, Tell: func(c Channel) any { return declared(&c) },
		},
		Store: o.Store, Log: o.Log, Publish: s.publish,
	}, &rules{o.Rules, s.ways}, s.ways.program)
	c.Channels.Await = s.takeOver
	o.Treatments.Subscribe(Name, c.Channels.Wake)
	s.thumbnails = gatewayapi.NewThumbnails(s.thumbnail)
	c.metrics = newMetrics(s)
	return s
}

// Name is the service's name.
func (s *Service) Name() string { return Name }

// Loaded is closed when what the store has is there.
func (s *Service) Loaded() <-chan struct{} { return s.Channels.Loaded() }

// Run works until ctx ends. Rules and groups stay in the switches.
func (s *Service) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.tasks.Cancel)
	defer stop()
	for d, err := range s.Rules.EverySwitch(ctx, "guard", func(d openflow.DatapathID) network.Program { return tree.Guard(d, s.Media) }) {
		s.Log.Warn("a switch does not take what keeps strangers' packets out of channels", "switch", d, "error", err)
	}
	for d, err := range s.Rules.EverySwitch(ctx, "guard-by-ecn", func(d openflow.DatapathID) network.Program { return tree.GuardByECN(d, s.Media) }) {
		s.Log.Info("a switch does not take what has it forget channels; viewers who come back soon may see them later", "switch", d, "error", err)
	}
	return s.sources.registry.While(ctx, func(ctx context.Context) error {
		return s.egress.While(ctx, func(ctx context.Context) error {
			defer s.tasks.Stop()
			s.ways.load(ctx)
			s.tasks.Start(s.ways.keep)
			s.tasks.Start(s.sources.run)
			return s.Channels.Run(ctx, s.Configured)
		})
	})
}

// NetworkChanged tells the service of a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	s.sources.registry.NetworkChanged(e)
	s.egress.NetworkChanged(e)
	if e.Kind == network.SwitchUp {
		s.ways.remeter(e.Switch)
	}
	switch e.Kind { // where gateways are, the registries tell
	case network.LinkDown:
		s.ways.moved()
		s.mend(e.Link.From)
	case network.SwitchDown, network.SwitchUp:
		s.ways.connected(e.Switch, e.Kind == network.SwitchUp)
	case network.LinkUp:
		s.ways.moved()
	default:
		return
	}
	s.Channels.Wake()
}

// Needed lists the data addresses of gateways, for examinations of the network.
func (s *Service) Needed() []diagnosis.Needed {
	return append(s.sources.registry.Needed(Name), s.egress.Needed(Name)...)
}
