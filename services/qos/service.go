package qos

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// Name is the name of the service. The paths of its API and its keys in the store begin with it.
const Name = "qos"

// Part is one part of the service.
type Part interface {
	// Register adds the part's operations and metrics to the API.
	Register(*api.API)
	// Loaded returns a channel that is closed once the part's stored state has been read.
	Loaded() <-chan struct{}
	// Run runs the part until ctx ends.
	Run(context.Context) error
	// NetworkChanged informs the part of a change in the network. It must not block.
	NetworkChanged(network.Event)
}

// Service is the QoS service in the controller.
type Service struct {
	book   *reserve.Book
	guard  *guard.Guard
	parts  []Part
	loaded chan struct{} // closed when all parts have loaded

	// definitions and classes are the collections that Reload changes. fromParts sets them.
	definitions *kit.Collection[*critical.Definition]
	classes     *kit.Collection[*classes.Class]
}

// New returns a Service of parts that share the book of promises and the guard held.
func New(book *reserve.Book, held *guard.Guard, parts ...Part) *Service {
	return &Service{book: book, guard: held, parts: parts, loaded: make(chan struct{})}
}

// Name returns the name of the service.
func (s *Service) Name() string { return Name }

// Loaded returns a channel that is closed once the stored state of all parts has been read.
func (s *Service) Loaded() <-chan struct{} { return s.loaded }

// awaitParts closes loaded once all parts have loaded.
func (s *Service) awaitParts(ctx context.Context) {
	for _, p := range s.parts {
		select {
		case <-ctx.Done():
			return
		case <-p.Loaded():
		}
	}
	close(s.loaded)
}

// Run runs the parts until ctx ends, or a part fails.
func (s *Service) Run(ctx context.Context) error {
	group, own := errgroup.WithContext(ctx)
	group.Go(func() error { s.awaitParts(own); return nil })
	group.Go(func() error { return s.guard.Run(own) })
	for _, p := range s.parts {
		group.Go(func() error { return p.Run(own) })
	}
	return group.Wait()
}

// NetworkChanged informs the parts of a change in the network. It does not block.
func (s *Service) NetworkChanged(e network.Event) {
	for _, p := range s.parts {
		p.NetworkChanged(e)
	}
}

// Register adds the operations of all parts to the API.
func (s *Service) Register(a *api.API) {
	for _, p := range s.parts {
		p.Register(a)
	}
	kit.Show(kit.NewREST(a, Name), "reservations", "List what is promised on links", s.book.Reservations)
}
