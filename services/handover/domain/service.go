package domain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
)

// Options holds what a Service needs.
type Options struct {
	// Self is the name of this domain, as in the certificates that neighbours have issued to it.
	Self       string
	Neighbours []Neighbour
	Host       Host
	Store      store.Store
	// Emit publishes an event.
	Emit   func(kind string, attrs any)
	Log    *slog.Logger
	Timing Timing
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Dial connects to neighbours; nil means the network of this process.
	Dial Dialer
}

// Service runs the protocol for one domain, in both roles: as a domain that devices leave, and as one
// to which they come.
type Service struct {
	*common
	// Origin and Receiver implement the two roles.
	Origin   *Origin
	Receiver *Receiver

	unknown *neighbour // stands for all senders that are no neighbours
	// restored is closed when Restore has finished.
	restored chan struct{}
}

// Errors of the calls that a Host makes, for errors.Is.
var (
	ErrNoNeighbour = errors.New("no such neighbour")
	ErrNotHere     = errors.New("the device is not attached in this domain")
	ErrMoving      = errors.New("another move of the device is under way")
)

// New returns a service. Call Restore and then Run.
func New(o Options) (*Service, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := checkNeighbours(o.Self, o.Neighbours); err != nil {
		return nil, fmt.Errorf("handover/domain: %w", err)
	}
	c := &common{
		self: o.Self, host: o.Host, emit: o.Emit, log: o.Log, timing: o.Timing.withDefaults(), now: o.Now,
		neighbours: map[string]*neighbour{}, tasks: tasks.New(), records: newRecords(o.Self, o.Store, o.Now),
	}
	for _, n := range o.Neighbours {
		c.neighbours[n.Name] = c.newNeighbour(n, o.Dial)
	}
	s := &Service{
		common: c, Origin: &Origin{common: c, done: newRecent(4096)},
		Receiver: &Receiver{common: c, asking: map[openflow.MAC]bool{}, notFound: map[question]time.Time{}},
		unknown:  &neighbour{Neighbour: Neighbour{Name: "unknown"}}, restored: make(chan struct{}),
	}
	c.delivered, c.metrics = s.Origin.delivered, newMetrics(s)
	return s, nil
}

// Restore restores the records that were stored before a restart. It must be called once, after the
// Host has read its devices and before Run. Until it has finished, neighbours wait for answers.
func (s *Service) Restore(ctx context.Context) error {
	records, unreadable, err := s.records.load(ctx)
	if err != nil {
		return fmt.Errorf("handover/domain: %w", err)
	}
	for _, key := range unreadable {
		s.log.Error("a record of a roaming device cannot be decoded and is ignored", "key", key)
	}
	for i := range records {
		r := &records[i]
		s.dropUnknownNeighbours(ctx, r)
		s.put(ctx, r)
		if r.Move == nil || !r.Move.In {
			continue
		}
		// The device was on its way here: either it has come, or it has to be announced anew.
		if k, ok := s.host.Device(r.ID); ok && k.Here {
			s.Receiver.arrive(r, nil, s.now())
		} else {
			s.Receiver.abandonIncoming(ctx, r, "the controller was restarted")
		}
		s.put(ctx, r)
	}
	close(s.restored)
	return nil
}

// dropUnknownNeighbours removes from a record the messages and the move for neighbours that are no
// longer configured. If such a neighbour is upstream or downstream, the device is removed, because its
// packets have no path any more.
func (s *Service) dropUnknownNeighbours(ctx context.Context, r *Record) {
	for _, name := range []string{r.Upstream, r.Downstream} {
		if name != "" && s.neighbours[name] == nil {
			s.log.Warn("a roaming device is removed: the neighbour no longer exists", "device", r.ID, "neighbour", name)
			s.forget(ctx, r)
		}
	}
	kept := r.Outbox[:0]
	for _, o := range r.Outbox {
		if s.neighbours[o.Peer] != nil {
			o.NotBefore = time.Time{} // a restart takes longer than the delay
			kept = append(kept, o)
		}
	}
	r.Outbox = kept
	if r.Move != nil && s.neighbours[r.Move.Peer] == nil {
		r.Move = nil
	}
}

// Run delivers the outboxes to the neighbours and enforces deadlines, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, s.tasks.Cancel)()
	defer s.tasks.Stop()
	var wg sync.WaitGroup
	for _, n := range s.neighbours {
		wg.Go(func() { n.deliverAll(ctx) })
		wg.Go(func() { n.greet(ctx) })
	}
	wg.Go(func() { s.watch(ctx) })
	wg.Wait()
	for _, n := range s.neighbours {
		n.client.close()
	}
}

// Upstream returns the neighbour over whose peering the packets of the device come, and reports
// whether there is one. A Host that restarts calls it for its visitors.
func (s *Service) Upstream(id string) (string, bool) {
	r, _ := s.Record(id)
	return r.Upstream, r.Upstream != ""
}

// Record returns the record of a device, and reports whether there is one.
func (s *Service) Record(id string) (Record, bool) {
	if r := s.records.get(id); r != nil {
		return *r, true
	}
	return Record{}, false
}
