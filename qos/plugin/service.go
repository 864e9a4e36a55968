package plugin

import (
	"context"
	"errors"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/qos/reserve"
	"github.com/sluice-net/sluice/service"
)

// Name is the service's name: its path in the API and its keys in the store.
const Name = "qos"

// Part is one part of the service.
type Part interface {
	// Register adds the part's operations and metrics to the API.
	Register(*api.API)
	// Loaded is closed when what the store has of the part is there.
	Loaded() <-chan struct{}
	// Run works until ctx ends.
	Run(context.Context) error
	// NetworkChanged tells of a change in the network. It must not block.
	NetworkChanged(network.Event)
}

// Service is QoS in the controller.
type Service struct {
	book   *reserve.Book
	parts  []Part
	loaded chan struct{} // closed when all parts have
}

// New joins parts that share a book.
func New(book *reserve.Book, parts ...Part) *Service {
	return &Service{book: book, parts: parts, loaded: make(chan struct{})}
}

// Name is the service's name.
func (s *Service) Name() string { return Name }

// Loaded is closed when what the store has of all parts is there.
func (s *Service) Loaded() <-chan struct{} { return s.loaded }

// awaitParts closes loaded in time.
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

// Run works until ctx ends, or a part fails.
func (s *Service) Run(ctx context.Context) error {
	group := tasks.New()
	defer group.Stop()
	stop := context.AfterFunc(ctx, group.Cancel)
	defer stop()
	group.Start(s.awaitParts)
	ended := make(chan error, len(s.parts))
	for _, p := range s.parts {
		if !group.Start(func(own context.Context) { ended <- p.Run(own) }) {
			ended <- nil // ctx has ended already
		}
	}
	var all error
	for range s.parts {
		all = errors.Join(all, <-ended)
		group.Cancel()
	}
	return all
}

// NetworkChanged tells the parts of a change in the network. It does not block.
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
	service.Show(service.NewREST(a, Name), "reservations", "List what is promised on links", s.reservations)
}

// Reservation is what is promised on one direction of a link.
type Reservation struct {
	Link      string        `json:"link" doc:"Port by which it leaves its switch" example:"0000000000000001/2"`
	Capacity  uint64        `json:"capacity_bits_per_second"`
	Used      uint64        `json:"used_bits_per_second" doc:"As measured"`
	Promised  uint64        `json:"promised_bits_per_second" doc:"Sum of the promises"`
	Unseen    uint64        `json:"unseen_bits_per_second" doc:"The part of it that measurements do not show yet"`
	Available uint64        `json:"available_bits_per_second" doc:"What can still be promised"`
	For       []reserve.Key `json:"for" doc:"What it is promised for"`
}

func (s *Service) reservations() []Reservation {
	out := []Reservation{}
	for _, l := range s.book.Lines() {
		out = append(out, Reservation{
			Link: l.Link.String(), Capacity: l.Capacity, Used: l.Used, Promised: l.Promised, Unseen: l.Unseen, Available: l.Available, For: append([]reserve.Key{}, l.Keys...),
		})
	}
	return out
}
