package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/controller/networkapi"
	"github.com/sluice-net/sluice/dashboard"
	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/tlsconn"
	"github.com/sluice-net/sluice/internal/version"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/store"
)

// Options configures a Controller. Tests and labs supply listeners of their own, which may be in
// another network namespace.
type Options struct {
	Config *config.Controller
	Log    *slog.Logger
	// OpenFlow, API and SFlow replace the listeners that the configuration names.
	OpenFlow []net.Listener
	API      net.Listener
	SFlow    net.PacketConn
	// DialAgent connects to agents. If it is nil, a net.Dialer is used.
	DialAgent control.Dialer
	// DialNeighbour connects to the controllers of other domains. If it is nil, a net.Dialer is
	// used.
	DialNeighbour func(ctx context.Context, network, addr string) (net.Conn, error)
	// Services lists the services in the order in which they are made.
	Services []kit.Definition
}

// Controller is a controller with all its parts. Make it with New, then call Run.
type Controller struct {
	opts     Options
	cfg      *config.Controller
	log      *slog.Logger
	started  time.Time
	store    store.Store
	bus      *event.Bus
	net      *network.Network
	api      *api.API
	paths    *networkapi.Paths
	listener net.Listener
	services []kit.Service
	// databases manages the switches' databases.
	databases *ovsdb.Manager
	// treatments connects the service that promises classes of traffic with services that rewrite
	// packets.
	treatments network.Treatments
	// reloads holds the functions that apply a reloaded configuration, in their order. inForce is
	// the last configuration that all of them have applied.
	reloads []prepare
	inForce atomic.Pointer[config.Controller]
}

// New makes a controller. When it returns, the configuration has been checked completely and the
// listeners are open.
func New(ctx context.Context, o Options) (_ *Controller, err error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	c := &Controller{opts: o, cfg: o.Config, log: o.Log, started: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.store, err = openStore(ctx, c.cfg, c.log); err != nil {
		return nil, err
	}
	if c.bus, err = event.Open(ctx, c.store, c.cfg.Events.Remember); err != nil {
		return nil, err
	}
	if err := c.makeNetwork(ctx); err != nil {
		return nil, err
	}
	if err := c.makeAPI(); err != nil {
		return nil, err
	}
	if err := c.makeServices(); err != nil {
		return nil, err
	}
	c.reloads = append(c.reloads, c.reloadPinned, c.reloadToken) // reloadToken may create a file, so it comes last
	c.inForce.Store(c.cfg)
	return c, nil
}

// close releases what New has opened, for a controller that is never run.
func (c *Controller) close() error {
	var errs []error
	if c.net != nil {
		c.net.Close()
	}
	if c.listener != nil {
		errs = append(errs, c.listener.Close())
	}
	if c.bus != nil {
		c.bus.Close()
	}
	if c.store != nil {
		errs = append(errs, c.store.Close())
	}
	return errors.Join(errs...)
}

func (c *Controller) makeNetwork(ctx context.Context) error {
	nc, err := networkConfig(c.cfg)
	if err != nil {
		return err
	}
	nc.Log = c.log
	nc.Publish = func(kind string, attrs any) { c.bus.Publish(kind, networkapi.EventAttrs(attrs)) }
	if c.cfg.Store.Kind != "memory" {
		// The epoch counts the starts of this controller; it is never zero here.
		nc.Generation = uint16(event.Epoch(c.bus.Last())%0xffff) + 1
	}
	if c.opts.OpenFlow != nil {
		nc.Listen, nc.Listeners = nil, c.opts.OpenFlow
	}
	nc.SFlowConn = c.opts.SFlow
	if nc.Remembered, err = c.loadHosts(ctx); err != nil {
		return err
	}
	nc.Remember = c.storeHosts
	if c.net, err = network.New(nc); err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	if err := c.makeDatabases(); err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	return nil
}

var measures = map[string]network.Measure{"poll": network.MeasurePoll, "sflow": network.MeasureSFlow, "both": network.MeasureBoth}

// networkConfig converts the configuration to that of the network.
func networkConfig(c *config.Controller) (network.Config, error) {
	o, n := c.OpenFlow, c.Network
	metric, err := topology.ParseMetric(n.Forwarding.Metric)
	if err != nil {
		return network.Config{}, err
	}
	nc := network.Config{
		EchoInterval: o.EchoInterval, EchoTimeout: o.EchoTimeout, RequestTimeout: o.RequestTimeout, BindCertificates: o.BindCerts,
		MaxSwitches: o.MaxSwitches, MaxPorts: o.MaxPorts, Memory: int64(o.Memory),
		DisableForwarding: !n.Forwarding.Enabled, ForwardIdle: n.Forwarding.IdleTimeout, ForwardRules: n.Forwarding.MaxRules, ForwardMetric: metric,
		Proactive: n.Forwarding.Mode == "proactive", ForwardUnequal: n.Forwarding.Unequal, ForwardPrefixes: n.Forwarding.Prefixes,
		IgnoreVLAN: n.Hosts.IgnoreVLAN, Subnets: n.Hosts.Subnets, Pinned: pinned(n.Hosts.Pinned),
		HostConfirm: n.Hosts.Confirm, AccessHosts: n.Hosts.Access, HoldLimit: n.Hosts.HoldLimit,
		DiscoveryInterval: n.Discovery.Interval, DiscoveryTimeout: n.Discovery.Timeout, LatencyWindow: n.Discovery.Window,
		StatsInterval: n.StatsInterval, Measure: measures[n.Measure], SFlow: n.SFlow.Listen.String(),
		CompareInterval: compareInterval(n.Compare),
		Capacities:      map[network.PortRef]uint64{}, PortRoles: map[network.PortRef]network.PortRole{},
		Overrides: map[openflow.DatapathID]network.Override{}, Names: map[openflow.DatapathID]string{},
	}
	for dpid, s := range n.Switches {
		for port, rate := range s.Capacity {
			nc.Capacities[network.PortRef{Switch: dpid, Port: uint32(port)}] = uint64(rate)
		}
		for port, role := range s.Roles {
			nc.PortRoles[network.PortRef{Switch: dpid, Port: uint32(port)}] = portRoles[role]
		}
		nc.Names[dpid] = s.Name
		nc.Overrides[dpid] = network.Override{L2Rewrite: s.Rewrite == "l2", NoBundles: s.Bundles == "off", Layout: s.Tables.Layout}
	}
	for _, a := range o.Listen {
		nc.Listen = append(nc.Listen, a.String())
	}
	if t := o.TLS; t.Enabled() {
		if nc.TLS, err = pki.Server(t.Files(), t.CA != "", pki.RoleSwitch); err != nil {
			return network.Config{}, fmt.Errorf("controller: openflow.tls: %w", err)
		}
	}
	return nc, nil
}

// compareInterval converts network.compare_interval to the network's configuration, where zero means
// the default.
func compareInterval(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// portRoles maps the names of port roles in the configuration to roles.
var portRoles = map[string]network.PortRole{"access": network.PortAccess, "uplink": network.PortUplink, "trunk": network.PortTrunk}

func pinned(all map[netip.Addr]config.PinnedHost) map[netip.Addr]network.Pin {
	out := make(map[netip.Addr]network.Pin, len(all))
	for addr, p := range all {
		out[addr.Unmap()] = network.Pin{MAC: p.MAC, At: network.PortRef{Switch: p.Switch, Port: uint32(p.Port)}}
	}
	return out
}

func (c *Controller) makeAPI() (err error) {
	if c.listener = c.opts.API; c.listener == nil {
		if c.listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", c.cfg.API.Listen.String()); err != nil {
			return fmt.Errorf("controller: api.listen: %w", err)
		}
	}
	auth, err := c.auth()
	if err != nil {
		return err
	}
	c.api = api.New(api.Options{Version: version.Get().Version, Auth: auth, Bus: c.bus, Log: c.log, MaxBody: int64(c.cfg.API.MaxBody)})
	c.register()
	return nil
}

// register adds the operations that belong to no service.
func (c *Controller) register() {
	describeTypes(c.api)
	names := networkapi.Names{}
	for dpid, s := range c.cfg.Network.Switches {
		if s.Name != "" {
			names[dpid] = s.Name
		}
	}
	c.paths = networkapi.Register(c.api, c.net, names)
	c.registerStatus()
	c.api.Metrics().MustRegister(newCertificateMetrics(c.cfg))
	c.registerStore()
	c.api.HandlePublic("GET "+dashboard.Path, dashboard.Handler())
	c.api.HandlePublic("GET /{$}", http.RedirectHandler(dashboard.Path, http.StatusFound))
	c.api.AddCheck(api.Check{Name: "store", Run: func(ctx context.Context) error {
		_, err := c.store.List(ctx, "event/")
		return err
	}})
}

// tokens reads the token file that a configuration names. If the file does not exist, it creates the
// file with a random token.
func (c *Controller) tokens(cfg *config.Controller) ([]api.Token, error) {
	file := cmp.Or(cfg.API.TokenFile, filepath.Join(cfg.DataDir, "token"))
	token, made, err := api.LoadToken("file", file)
	if err != nil {
		return nil, err
	}
	if made {
		c.log.Info("a token for the API has been made", "file", file)
	}
	return []api.Token{token}, nil
}

// auth returns the API's authentication, and sets up TLS if it is configured.
func (c *Controller) auth() (api.Auth, error) {
	tokens, err := c.tokens(c.cfg)
	if err != nil {
		return api.Auth{}, fmt.Errorf("controller: %w", err)
	}
	t := c.cfg.API.TLS
	auth := api.Auth{Tokens: tokens, OpenReads: c.cfg.API.OpenReads, ClientCerts: t.CA != "", Roles: t.Roles}
	if t.CA != "" {
		revocations, err := pki.NewRevocations(t.CA)
		if err != nil {
			return api.Auth{}, fmt.Errorf("controller: api.tls: %w", err)
		}
		auth.Revoked = revocations.Check
	}
	if t.Enabled() {
		tlsConfig, err := pki.Server(t.Files(), false)
		if err != nil {
			return api.Auth{}, fmt.Errorf("controller: api.tls: %w", err)
		}
		tlsConfig.NextProtos = []string{"h2", "http/1.1"}
		c.listener = tlsconn.NewListener(c.listener, tlsConfig)
	}
	return auth, nil
}

// Addr returns the addresses on which the API listens and switches connect.
func (c *Controller) Addr() (api net.Addr, openFlow []net.Addr) {
	return c.listener.Addr(), c.net.Addr()
}

// Network returns the controller's network, for tests.
func (c *Controller) Network() *network.Network { return c.net }

// Run runs the controller until ctx ends or a part fails. Rules stay in the switches, so that a
// restart does not interrupt the traffic that they carry.
func (c *Controller) Run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	apiAddr, ofAddr := c.Addr()
	c.log.Info("controller runs", "version", version.Get().Version, "api", apiAddr, "openflow", ofAddr, "data_dir", c.cfg.DataDir)
	// Parts stop in the reverse order: the API first, so that no new requests come, then the
	// services, then the network with its connections to switches.
	stopStore := c.part(ctx, fail, "store", c.runStore)
	stopNetwork := c.part(ctx, fail, "network", c.net.Run)
	stopDatabases := c.part(ctx, fail, "databases", c.databases.Run)
	stopServices := make([]func(), 0, len(c.services))
	for _, s := range c.services {
		stopServices = append(stopServices, c.part(ctx, fail, s.Name(), s.Run))
	}
	stopAPI := c.part(ctx, fail, "api", func(ctx context.Context) error { return c.api.Run(ctx, c.listener) })
	<-ctx.Done()
	c.log.Info("controller stops")
	stopped := make(chan error, 1)
	go func() { // ends when the parts have stopped, or with the process
		stopAPI()
		for _, stop := range stopServices {
			stop()
		}
		stopDatabases()
		stopNetwork()
		stopStore()
		c.bus.Close()
		stopped <- c.store.Close()
	}()
	err := context.Cause(ctx)
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	select {
	case closed := <-stopped:
		return errors.Join(err, closed)
	case <-time.After(stopTimeout):
		return errors.Join(err, fmt.Errorf("controller: not all of it has stopped after %v", stopTimeout))
	}
}

// stopTimeout bounds the time in which the parts have to stop. It is less than the stop timeout of
// the package's systemd unit.
const stopTimeout = 18 * time.Second

// part runs one part in a goroutine. The function that it returns stops the part and waits for its
// end. If a part ends by itself, the controller fails.
func (c *Controller) part(ctx context.Context, fail context.CancelCauseFunc, name string, run func(context.Context) error) (stop func()) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		err := run(own)
		if own.Err() != nil {
			if err != nil && !errors.Is(err, context.Canceled) {
				c.log.Warn("stopping", "part", name, "error", err)
			}
			return
		}
		if err == nil {
			err = errors.New("ended by itself")
		}
		fail(fmt.Errorf("controller: %s: %w", name, err))
	})
	return func() { cancel(); wg.Wait() }
}
