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
	// Doc is what the reference of the configuration says of the section.
	Doc string
	// Section returns a section that has the defaults; nil for a service without one.
	Section func() config.Section
	// New makes the service, and adds its handlers and owners of rules to the network. It
	// returns nil without an error if the configuration leaves the service out.
	New func(Parts) (Service, error)
}

// Sections returns the sections that a controller's configuration has of services, with the
// defaults.
func Sections(all []Definition) []config.ServiceSection {
	var out []config.ServiceSection
	for _, d := range all {
		if d.Section != nil {
			out = append(out, config.ServiceSection{Key: d.Name, Doc: d.Doc, Section: d.Section()})
		}
	}
	return out
}

// Parts is what a service is made from.
type Parts struct {
	Network *network.Network
	Store   store.Store
	Bus     *event.Bus
	Log     *slog.Logger
	// Config is the controller's configuration; config.Of returns the service's own section.
	Config *config.Controller
	// Treatments are what classes of traffic promise to packets that a service leads under
	// other headers than their own; Along asks for them.
	Treatments *network.Treatments
	// Databases are those of the switches that run Open vSwitch.
	Databases *ovsdb.Manager
	// DialAgent connects to agents, and DialNeighbour to the controllers of other domains; nil
	// for the ordinary way.
	DialAgent     control.Dialer
	DialNeighbour func(ctx context.Context, network, addr string) (net.Conn, error)
}

// AgentTLS returns how agents are spoken to whose certificates have a role; nil without an error
// if the configuration (agents.tls) has no certificate for that.
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

// Service is what a service offers to the controller. Services never see each other.
type Service interface {
	// Name is a lower-case word: the service's path below /api/v1, the prefix of its events
	// and of its keys in the store.
	Name() string
	// Register adds the service's operations and metrics to the API. It is called once, before
	// Run.
	Register(a *api.API)
	// Loaded is closed when Run has read what the store has of the service. Until then nothing
	// can be read of it.
	Loaded() <-chan struct{}
	// Run works until ctx ends. What it installed in the network stays there: a restart must
	// not interrupt what established rules carry.
	Run(ctx context.Context) error
}

// Reloader is a Service that takes changes of its section without a restart.
type Reloader interface {
	// Reload reports whether the service can take a section, which its own Adopt has returned,
	// and changes nothing. What it returns makes the service take the section.
	Reload(ctx context.Context, next config.Section) (take func(context.Context) error, err error)
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

// Reload reports whether a collection, which has been loaded, can take what is configured, and
// changes nothing. What it returns makes the collection take it. It is for a service's Reload.
func (c *Collection[T]) Reload(configured map[string]T, faults Faults) (take func(context.Context) error, err error) {
	if err := faults.Err(); err != nil {
		return nil, err
	}
	if err := c.Fits(configured); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return c.Configure(ctx, configured) }, nil
}

// TakeAll returns what runs all of several parts of a Reload, also if one of them fails.
func TakeAll(takes ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		for _, take := range takes {
			err = errors.Join(err, take(ctx))
		}
		return err
	}
}
