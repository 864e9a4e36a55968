package controller

import (
	"context"
	"crypto/tls"
	"log/slog"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/service/control"
	"github.com/sluice-net/sluice/store"
)

// Parts is what a service of your own is made from; its configuration is its own matter.
type Parts struct {
	Network *network.Network
	Store   store.Store
	Bus     *event.Bus
	Log     *slog.Logger
	// AgentTLS is how agents are spoken to; nil if the configuration (sos.tls) has no
	// certificate for that. DialAgent connects to them; nil for the ordinary way.
	AgentTLS  *tls.Config
	DialAgent control.Dialer
}

// Constructor makes a service, and adds its handlers and owners of rules to the network.
type Constructor func(Parts) (Service, error)

// Service is what a plugin offers to the controller. Its constructor gets what
// it works with (network, store, event bus, its part of the configuration,
// logger); services never see each other.
type Service interface {
	// Name is a lower-case word: the service's path below /api/v1, the prefix
	// of its events and of its keys in the store.
	Name() string
	// Register adds the service's operations and metrics to the API, and its
	// handlers to the network. It is called once, before Run.
	Register(a *api.API)
	// Loaded is closed when Run has read what the store has of the service. Until
	// then nothing can be read of it.
	Loaded() <-chan struct{}
	// Run works until ctx ends. What it installed in the network stays there:
	// a restart must not interrupt what established rules carry.
	Run(ctx context.Context) error
}
