package kit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/store"
)

// Definition describes a service to the controller.
type Definition struct {
	// Name is a lower-case word: the key of the service's section in the configuration.
	Name string
	// Doc describes the section in the reference of the configuration.
	Doc string
	// Section returns a section with the default values. It is nil for a service without a section.
	Section func() config.Section
	// New makes the service, and adds its handlers and owners of rules to the network. It
	// returns nil without an error if the configuration leaves the service out.
	New func(Parts) (Service, error)
}

// Sections returns the services' sections of a controller's configuration, with the default
// values.
func Sections(all []Definition) []config.ServiceSection {
	var out []config.ServiceSection
	for _, d := range all {
		if d.Section != nil {
			out = append(out, config.ServiceSection{Key: d.Name, Doc: d.Doc, Section: d.Section()})
		}
	}
	return out
}

// Parts holds the controller's parts that a service is made from.
type Parts struct {
	Network *network.Network
	Store   store.Store
	Bus     *event.Bus
	Log     *slog.Logger
	// Config is the controller's configuration; config.Of returns the service's own section.
	Config *config.Controller
	// Treatments gives packets whose headers a service has rewritten the queues that are reserved
	// for their class of traffic. Along uses it.
	Treatments *network.Treatments
	// Databases manages the databases of the switches that run Open vSwitch.
	Databases *ovsdb.Manager
	// DialAgent connects to agents, and DialNeighbour to the controllers of other domains. If one
	// is nil, a net.Dialer is used.
	DialAgent     control.Dialer
	DialNeighbour func(ctx context.Context, network, addr string) (net.Conn, error)
}

// AgentTLS returns the TLS configuration for connections to agents whose certificates have a role.
// It returns nil without an error if the configuration (agents.tls) has no certificate.
func (p Parts) AgentTLS(role pki.Role) (*tls.Config, error) {
	t := p.Config.Agents.TLS
	if !t.Enabled() {
		return nil, nil //nolint:nilnil // agents on this machine need none
	}
	c, err := pki.Client(t.Files(), role)
	if err != nil {
		return nil, fmt.Errorf("agents.tls: %w", err)
	}
	return c, nil
}

// Service is the controller's view of a service. Services never see each other.
type Service interface {
	// Name is a lower-case word: the service's path below /api/v1, the prefix of its events
	// and of its keys in the store.
	Name() string
	// Register adds the service's operations and metrics to the API. It is called once, before
	// Run.
	Register(a *api.API)
	// Loaded returns a channel that is closed once Run has read the service's state from the
	// store. The service's operations wait for it.
	Loaded() <-chan struct{}
	// Run works until ctx ends. Rules that it installed stay in the network, so that a restart
	// does not interrupt the traffic that they carry.
	Run(ctx context.Context) error
}

// Reloader is a Service that applies changes of its section without a restart.
type Reloader interface {
	// Reload checks the section of a configuration that config.Adopt has returned, and changes
	// nothing. The function that Reload returns applies the section.
	Reload(ctx context.Context, next config.Section) (apply func(context.Context) error, err error)
}

// AwaitLoaded waits until a service has read its store.
func AwaitLoaded(ctx context.Context, s Service) error {
	select {
	case <-s.Loaded():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s has not read its store yet: %w", s.Name(), ctx.Err())
	}
}

// Reload checks whether a loaded collection can hold the configured items, and changes nothing. The
// function that it returns applies them. A service's own Reload uses it.
func (c *Collection[T]) Reload(configured map[string]T, faults Faults) (apply func(context.Context) error, err error) {
	if err := faults.Err(); err != nil {
		return nil, err
	}
	if err := c.Fits(configured); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return c.Configure(ctx, configured) }, nil
}

// ApplyAll returns a function that calls all functions that several Reloads have returned, even if
// one of them fails.
func ApplyAll(all ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		for _, apply := range all {
			err = errors.Join(err, apply(ctx))
		}
		return err
	}
}
